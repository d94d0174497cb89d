"""Advice on a ladder drawn from evidence, in the engine's own words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Window
from replaywatch.detectors.engine_flags import instead_of_maximum, sizes_flag
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.ladder import Advice, advise
from replaywatch.detectors.ladder_cost import DEFAULT_GROWTH, CostModel, Ladder, price, savings

MIN_SAVED_RATIO: Final = 0.005
MAX_TOLD: Final = 6
DAY_SECONDS: Final = 86_400  # how long a process is taken to live
MIB: Final = 1 << 20


def from_evidence(evidence: Evidence) -> Advice | None:
    """Advice for a workload whose batch sizes and captured sizes are known; None otherwise, or where little is won.

    What is advised fits the recent batches and those since the start alike, and weighs captures; what it saves is told
    of the recent steps alone.
    """
    config, recent = evidence.config, _in_unit(evidence, evidence.recent)
    if config is None or not config.capture_sizes or not recent:
        return None
    seen = _with_lifetime(recent, _in_unit(evidence, evidence.lifetime))
    admitted = config.max_batch_size * tokens_of_a_sequence(evidence) if config.max_batch_size else math.inf
    model, padding = _model(evidence, config, recent), config.padding is not False
    advice = advise(
        seen,
        config.capture_sizes,
        model,
        padding=padding,
        keep_top=int(min(max(seen), admitted)),
        keep_up_to=math.inf if _serve_more_than_decode(config) else admitted,
    )
    steps_only = replace(model, capture_us=0.0)
    now, then = price(recent, advice.now.sizes, steps_only, padding), price(recent, advice.then.sizes, steps_only)
    told = Advice(now, then, savings(recent, then, steps_only))
    return told if told.saved_ratio >= MIN_SAVED_RATIO else None


def advice_text(evidence: Evidence) -> str | None:
    """Advice as sentences with the exact flag; None where there is none."""
    advice, config = from_evidence(evidence), evidence.config
    if advice is None or config is None:
        return None
    engine = config.engine if config.engine != "unknown" else evidence.workload.engine
    version = evidence.fingerprint.engine_version if evidence.fingerprint else None
    now, then = advice.now, advice.then
    instead = instead_of_maximum(engine, now.sizes, then.sizes, version)
    changes = _change("padding", now.padding_ratio, then.padding_ratio)
    changes += _change("eager steps", now.eager_ratio, then.eager_ratio)
    return (
        f"For the batches seen: {sizes_flag(engine, then.sizes, version)}{instead} ({changes}"
        f"about {advice.saved_ratio:.0%} of a step{_by_size(advice)}).{_start(evidence, config, now, then)}"
    )


def _change(what: str, now: float, then: float) -> str:
    """What a ratio becomes, with a comma after it; nothing where it stays."""
    before, after = f"{now:.0%}", f"{then:.0%}"
    return f"{what} {before} to {after}, " if before != after else ""


def tokens_of_a_sequence(evidence: Evidence) -> int:
    """Tokens that a decoding sequence has in the unit of the captured sizes."""
    config = evidence.config
    if config is None or config.capture_unit != "tokens":
        return 1
    return 1 + (config.speculative_tokens or 0)


def capture_us(lifetime: Window, sizes: int) -> float | None:
    """Measured time to capture one size, all its graphs together; None where not all captures were seen."""
    captured, capture = (lifetime.dispatch.captures or {}).get("ok", 0), lifetime.timing.capture
    if capture is None or capture.mean is None or captured < sizes:
        return None
    return capture.mean / 1000 * captured / sizes


def size_bytes(lifetime: Window, sizes: int) -> int:
    """Memory that graphs hold for one size on average; 0 where it is unknown."""
    return (lifetime.memory.pool_bytes or 0) // sizes


def _by_size(advice: Advice) -> str:
    """What each size saves against the list without it; the largest savings only."""
    saved = sorted(advice.saved_by_size.items(), key=lambda item: -item[1])[:MAX_TOLD]
    told = [f"{size} saves {ratio:.0%}" for size, ratio in sorted(saved) if ratio >= MIN_SAVED_RATIO]
    return f"; {', '.join(told)}" if told else ""


def _start(evidence: Evidence, config: EngineConfig, now: Ladder, then: Ladder) -> str:
    """What another number of sizes does to start-up and memory, where they were measured."""
    sizes = len(config.capture_sizes or ())
    each_us, each_bytes = capture_us(evidence.lifetime, sizes), size_bytes(evidence.lifetime, sizes)
    before, after = len(now.sizes), len(then.sizes)
    changes = []
    if each_us:
        changes.append(f"{after * each_us / 1e6:.1f} s of capture, not {before * each_us / 1e6:.1f}")
    if each_bytes:
        changes.append(f"{after * each_bytes / MIB:.0f} MiB of graph memory, not {before * each_bytes / MIB:.0f}")
    return f" {after} sizes, not {before}: about {', and '.join(changes)}." if changes else ""


def _in_unit(evidence: Evidence, window: Window) -> dict[int, int]:
    """Steps by batch in the unit of the captured sizes."""
    tokens = tokens_of_a_sequence(evidence)
    return {size * tokens: n for size, n in (window.dispatch.batch_sizes or {}).items() if size > 0}


def _with_lifetime(recent: Mapping[int, int], lifetime: Mapping[int, int]) -> dict[int, int]:
    """Recent batches and those since the start, each half the weight; nothing that was ever seen is lost."""
    share = sum(recent.values()) / (sum(lifetime.values()) or 1)
    weights = dict(recent)
    for size, n in lifetime.items():
        weights[size] = weights.get(size, 0) + max(1, round(n * share))
    return weights


def _serve_more_than_decode(config: EngineConfig) -> bool:
    """Whether mixed and prefill batches, which are counted elsewhere, are padded to the same sizes: vLLM's one list."""
    return config.engine == "vllm" and config.resolved_mode != "FULL_DECODE_ONLY"


def _model(evidence: Evidence, config: EngineConfig, seen: Mapping[int, int]) -> CostModel:
    """Costs from the process itself where they were measured, else the defaults.

    Memory bounds the advice where the engine set some aside for graphs.
    """
    sizes, lifetime = len(config.capture_sizes or ()), evidence.lifetime
    model = replace(
        CostModel(lifetime_steps=_steps_of_a_life(evidence)),
        size_bytes=size_bytes(lifetime, sizes),
        budget_bytes=_budget_bytes(lifetime),
    )
    captured_us = capture_us(lifetime, sizes)
    if captured_us is not None:
        model = replace(model, capture_us=captured_us)
    times = evidence.recent.timing.step_by_mode or {}
    full, eager = times.get("full") or times.get("piecewise"), times.get("eager")
    if full is None or not full.mean:
        return model
    mean_size = sum(size * n for size, n in seen.items()) / (sum(seen.values()) or 1)
    fixed_us = full.mean / 1000 / (1 + DEFAULT_GROWTH * mean_size)
    slowdown = eager.mean / full.mean if eager is not None and eager.mean else model.slowdown
    return replace(model, fixed_us=fixed_us, per_size_us=fixed_us * DEFAULT_GROWTH, slowdown=max(1.0, slowdown))


def _budget_bytes(lifetime: Window) -> int | None:
    estimated, taken = lifetime.memory.estimated_bytes, lifetime.memory.pool_bytes
    return max(estimated, taken or 0) if estimated else None


def _steps_of_a_life(evidence: Evidence) -> float:
    """Steps that a day has at the recent pace, or that were made already."""
    recent = evidence.recent
    seconds = (recent.end_ns - recent.start_ns) / 1e9
    steps = sum((recent.dispatch.steps or recent.dispatch.batch_sizes or {}).values())
    pace = steps / seconds * DAY_SECONDS if seconds > 0 else 0.0
    return max(pace, float(sum((evidence.lifetime.dispatch.steps or {}).values())), 1.0)
