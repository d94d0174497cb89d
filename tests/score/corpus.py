"""The recorded corpus as situations (tests/corpus/README.md says how each was made).

A trace shows kernels only. What the probe counts beside it, batch sizes and how they were dispatched, is added from the
item's own name for the two families that are about nothing else: batches past the ceiling, and padding.

Each recording is judged twice. Alone, as a file: the step time has to be guessed from a step that the profiler made up
to twice as long. And as a probe in the process would have it: beside the trace the step times that were measured before
any profiler was started (the blocks of the observed form, one by one). How long the graph form takes is in neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from replaywatch.contract.histogram import HistogramBuilder
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Dispatch, Timing, Window
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import judge
from replaywatch.sources.reader import read
from score.situation import Situation

FOLDER = Path(__file__).parents[1] / "data" / "corpus"
# The corpus names faults, the detectors have names; a trace has no configuration, so pieces are seen as coverage.
NAMES = {"gap": "replay_gap", "partial": "partial_coverage", "downgrade": "partial_coverage"}
_CEILING = re.compile(r"ceiling-b(\d+)eager-(\d)of4")
_PADDING = re.compile(r"replay-padding-b(\d+)to(\d+)")
_STEPS = 4000


@dataclass(frozen=True)
class Recorded:
    """One recording: its line of the manifest and its window."""

    line: dict[str, Any]
    window: Window

    @property
    def name(self) -> str:
        return str(self.line["name"])

    @property
    def step_us(self) -> float:
        """Median step without any profiler, microseconds."""
        return float(self.line["truth"]["observed_us"])

    @property
    def spread(self) -> float:
        """Relative spread of the blocks in which the step was timed."""
        blocks = self.line["truth"]["block_us"]["observed"]
        return pstdev(blocks) / fmean(blocks) if len(blocks) > 1 else 0.0


def recordings() -> Iterator[Recorded]:
    """Every recording with a truth, in the order of their names."""
    manifest = FOLDER / "manifest.jsonl"
    lines = [json.loads(text) for text in manifest.read_text().splitlines()] if manifest.exists() else []
    for line in sorted(lines, key=lambda one: str(one["name"])):
        if "truth" not in line or "trace" not in line:
            continue
        windows = read(FOLDER / line["trace"]["file"]).windows
        if windows:
            yield Recorded(line, windows[0])


def situation_of(recorded: Recorded) -> Situation:
    """A recording, judged from its trace alone."""
    window, config = _with_counts(recorded)
    return _judged(recorded, window, config, "corpus", is_sure=bool(recorded.line["host_is_steady"]))


def timed_situation_of(recorded: Recorded) -> Situation:
    """A recording with the step times that a probe measures beside it.

    The step is the measured one, so it does not matter at which speed the host ran during the trace.
    """
    window, config = _with_counts(recorded)
    truth, times = recorded.line["truth"], HistogramBuilder()
    for block_us in truth["block_us"]["observed"]:
        times.add(int(1000 * block_us), truth["steps_per_block"]["observed"])
    timed = replace(window, origin="probe", timing=Timing(step_period=times.build()))
    return _judged(recorded, timed, config, "timed", is_sure=True)


def _judged(
    recorded: Recorded, window: Window, config: EngineConfig | None, source: str, *, is_sure: bool
) -> Situation:
    line = recorded.line
    evidence = Evidence(workload=window.workload, recent=window, lifetime=window, config=config, is_recording=True)
    rho = max(0.0, float(line["truth"]["rho"]))
    return Situation(
        name=recorded.name if source == "corpus" else f"{recorded.name}, timed",
        source=source,
        judgement=judge(evidence),
        expected=_named(line["expected_findings"]),
        allowed=_named(line["allowed_findings"]),
        split=str(line["split"]),
        rho=rho,
        truth=rho if is_sure else None,
        group=str(line["family"]),
    )


def _named(findings: list[str]) -> frozenset[str]:
    return frozenset(NAMES.get(name, name) for name in findings)


def _with_counts(recorded: Recorded) -> tuple[Window, EngineConfig | None]:
    name, window = recorded.name, recorded.window
    if (found := _CEILING.match(name)) is not None:
        size, eager = int(found[1]), int(found[2]) * _STEPS // 4
        counted = Dispatch(
            steps={"full": _STEPS - eager, "eager": eager},
            batch_sizes={32: _STEPS - eager, size: eager},
            eager_batch_sizes={size: eager},
            fallbacks={"above_ceiling": eager},
        )
        config = EngineConfig(graphs_enabled=True, capture_sizes=(1, 2, 4, 8, 16, 32), capture_unit="sequences")
        return replace(window, dispatch=counted), config
    if (found := _PADDING.match(name)) is not None:
        size, rung = int(found[1]), int(found[2])
        counted = Dispatch(
            steps={"full": _STEPS},
            replays=_STEPS,
            batch_sizes={size: _STEPS},
            real_tokens=size * _STEPS,
            padded_tokens=rung * _STEPS,
        )
        return replace(window, dispatch=counted), EngineConfig(capture_sizes=(rung,), capture_unit="sequences")
    return window, None
