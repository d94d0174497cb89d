"""A ladder as each engine wants to be told it, and advice drawn from evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replaywatch.contract.window import Engine
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.ladder import DEFAULT_GROWTH, Advice, CostModel, advise

MIN_SAVED_RATIO: Final = 0.005
_UNKNOWN: Final = (999,)
_SGLANG_BY_PHASE: Final = (0, 5, 16)


def flag(engine: Engine, sizes: Sequence[int], version: str | None = None) -> str:
    """The exact setting for an engine. Shape: `version` as the engine reports it; None means a current one."""
    words = " ".join(map(str, sizes))
    release = _release(version)
    if engine == "vllm":
        return f"--cudagraph-capture-sizes {words}" if release >= (0, 11) else f"--cuda-graph-sizes {words}"
    if engine == "sglang":
        return f"--cuda-graph-bs{_sglang_phase(release)} {words}"
    listed = ", ".join(map(str, sizes))
    if engine == "trtllm":
        return f"cuda_graph_config: {{batch_sizes: [{listed}], enable_padding: true}}"
    if engine == "tgi":
        return f"--cuda-graphs {','.join(map(str, sizes))}"
    return f"graphs for the sizes {listed}"


def ceiling_flag(engine: Engine, top: int, version: str | None = None) -> str:
    """The exact setting of the largest captured size for an engine, in the engine's own unit."""
    release = _release(version)
    if engine == "vllm":
        return f"--max-cudagraph-capture-size {top}" if release >= (0, 11) else f"--cuda-graph-sizes ... {top}"
    if engine == "sglang":
        return f"--cuda-graph-max-bs{_sglang_phase(release)} {top}"
    if engine == "trtllm":
        return f"cuda_graph_config.max_batch_size: {top}"
    return f"graphs for sizes up to {top}"


def from_evidence(evidence: Evidence) -> Advice | None:
    """Advice for a workload whose batch sizes and captured sizes are known; None otherwise, or where little is won."""
    config, seen = evidence.config, dict(evidence.recent.dispatch.batch_sizes or {})
    if config is None or not config.capture_sizes or not seen:
        return None
    tokens = tokens_of_a_sequence(evidence)
    in_unit = {size * tokens: n for size, n in seen.items() if size > 0}
    top = max(in_unit, default=0)
    if config.max_batch_size:
        top = min(top, config.max_batch_size * tokens)
    model = _model(evidence, in_unit)
    advice = advise(in_unit, config.capture_sizes, model, padding=config.padding is not False, keep_top=top)
    return advice if advice.saved_ratio >= MIN_SAVED_RATIO else None


def advice_text(evidence: Evidence) -> str | None:
    """Advice as a sentence with the exact flag; None where there is none."""
    advice = from_evidence(evidence)
    if advice is None or evidence.config is None:
        return None
    engine = evidence.config.engine if evidence.config.engine != "unknown" else evidence.workload.engine
    version = evidence.fingerprint.engine_version if evidence.fingerprint else None
    now, then = advice.now, advice.then
    return (
        f"For the batches seen: {flag(engine, then.sizes, version)} (padding {now.padding_ratio:.0%} to "
        f"{then.padding_ratio:.0%}, eager steps {now.eager_ratio:.0%} to {then.eager_ratio:.0%}, "
        f"about {advice.saved_ratio:.0%} of a step)."
    )


def tokens_of_a_sequence(evidence: Evidence) -> int:
    """Tokens that a decoding sequence has in the unit of the captured sizes."""
    config = evidence.config
    if config is None or config.capture_unit != "tokens":
        return 1
    return 1 + (config.speculative_tokens or 0)


def _model(evidence: Evidence, seen: dict[int, int]) -> CostModel:
    """Step times from the process itself where both kinds ran, else the defaults."""
    times = evidence.recent.timing.step_by_mode or {}
    full, eager = times.get("full") or times.get("piecewise"), times.get("eager")
    lived = sum((evidence.lifetime.dispatch.steps or {}).values())
    steps = max(1e7, float(lived))
    if full is None or not full.mean:
        return CostModel(lifetime_steps=steps)
    total = sum(seen.values()) or 1
    mean_size = sum(size * n for size, n in seen.items()) / total
    fixed_us = full.mean / 1000 / (1 + DEFAULT_GROWTH * mean_size)
    slowdown = eager.mean / full.mean if eager is not None and eager.mean else CostModel().slowdown
    return CostModel(
        fixed_us=fixed_us,
        per_size_us=fixed_us * DEFAULT_GROWTH,
        slowdown=max(1.0, slowdown),
        lifetime_steps=steps,
    )


def _sglang_phase(release: tuple[int, ...]) -> str:
    """Newer releases set graphs by phase; where the release is unknown, the older name is understood by more."""
    return "-decode" if _SGLANG_BY_PHASE <= release < _UNKNOWN else ""


def _release(version: str | None) -> tuple[int, ...]:
    parts: list[int] = []
    for part in (version or "").split(".")[:3]:
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts) or _UNKNOWN
