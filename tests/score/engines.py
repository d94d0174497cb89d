"""What the probe sent out of real engines (tests/data/live/README.md), as situations."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window
from replaywatch.contract.wire import decode
from replaywatch.detectors.evidence import gather
from replaywatch.detectors.judge import judge
from score.situation import Situation

FOLDER = Path(__file__).parents[1] / "data" / "live"
Keep = Callable[[Window], bool]


def decoding(window: Window) -> bool:
    return window.workload.phase is None and bool(window.dispatch.steps)


def _eager(window: Window) -> bool:
    return decoding(window) and "eager" in (window.dispatch.steps or {})


def replayed(window: Window) -> bool:
    return decoding(window) and "eager" not in (window.dispatch.steps or {})


def _past_ceiling(window: Window) -> bool:
    return decoding(window) and "above_ceiling" in (window.dispatch.fallbacks or {})


def _target(window: Window) -> bool:
    return decoding(window) and window.workload.component is None


def _traced_only(window: Window) -> bool:
    """The part of a process that no engine's hook named: its kernels, without steps."""
    return window.workload.phase is None and window.workload.model_name is None


def _prefill(window: Window) -> bool:
    return window.workload.phase == "prefill"


# File, which of its windows, what should be said, what may be said, and the measured share.
LABELS: tuple[tuple[str, Keep, frozenset[str], frozenset[str], float | None], ...] = (
    ("vllm-default", decoding, frozenset(), frozenset(), None),
    ("vllm-default", _prefill, frozenset(), frozenset(), None),
    ("vllm-tensor-parallel", decoding, frozenset(), frozenset(), None),
    ("vllm-eager", decoding, frozenset({"disabled"}), frozenset(), None),
    ("vllm-eager", _prefill, frozenset(), frozenset(), None),
    ("vllm-ceiling32", _past_ceiling, frozenset({"overflow"}), frozenset({"disabled"}), 0.800),
    ("vllm-ceiling32", _prefill, frozenset(), frozenset(), None),
    ("transformers-generate", _eager, frozenset({"disabled"}), frozenset({"compile_mode"}), 0.838),
    ("transformers-generate", replayed, frozenset(), frozenset({"replay_gap"}), None),
    ("vllm-eager-measured", decoding, frozenset({"disabled"}), frozenset(), None),
    ("vllm-eager-measured", _traced_only, frozenset({"disabled"}), frozenset(), None),
    ("vllm-default-untraced", decoding, frozenset(), frozenset(), None),
    ("vllm-eager-untraced", decoding, frozenset({"disabled"}), frozenset(), 0.840),
    ("vllm-ranks-untraced", decoding, frozenset(), frozenset(), None),
    ("vllm-ranks-eager-untraced", decoding, frozenset({"disabled"}), frozenset(), 0.858),
    ("vllm-piecewise-untraced", decoding, frozenset({"partial_coverage"}), frozenset({"disabled", "fragmented"}), None),
    ("vllm-piecewise", decoding, frozenset({"partial_coverage"}), frozenset({"disabled", "fragmented"}), None),
    ("vllm-lora", decoding, frozenset(), frozenset(), None),
    ("vllm-lora", _prefill, frozenset(), frozenset(), None),
    ("vllm-draft", _target, frozenset(), frozenset(), None),
    ("vllm-served", decoding, frozenset({"overflow"}), frozenset({"replay_gap"}), None),
)


Part = tuple[list[Window], dict[str, Fingerprint], dict[str, EngineConfig]]


def parts(name: str, keep: Keep = lambda window: True) -> Iterator[Part]:
    """The kept windows of each workload of a recording, with the snapshots that they point to."""
    by_key: dict[str, list[Window]] = {}
    fingerprints: dict[str, Fingerprint] = {}
    configs: dict[str, EngineConfig] = {}
    for line in gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines():
        batch = decode(line)
        fingerprints.update(batch.fingerprints)
        configs.update(batch.configs)
        for window in filter(keep, batch.windows):
            by_key.setdefault(window.workload.key, []).append(window)
    for windows in by_key.values():
        yield windows, fingerprints, configs


def situations() -> Iterator[Situation]:
    """Every labelled part of every recording."""
    for name, keep, expected, allowed, truth in LABELS:
        if not (FOLDER / f"{name}.jsonl.gz").exists():
            continue
        lives = {part[0][0].workload: gather(part[0]).lifetime for part in parts(name)}
        for windows, fingerprints, configs in parts(name, keep):
            recent = gather(windows, fingerprints=fingerprints, configs=configs)
            judgement = judge(replace(recent, lifetime=lives[recent.workload]))
            yield Situation(
                f"{name}/{keep.__name__.strip('_')}", "engine", judgement, expected, allowed, truth=truth, group=name
            )
