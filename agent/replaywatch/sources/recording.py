"""`Recording`: what a reader makes of one file: windows, the snapshots they point to, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window

RecordingKind = Literal["kineto", "nsys", "log", "metrics"]
# Called with (done, total) units of work, usually bytes; a reader calls it at most every few hundred milliseconds.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Span:
    """A rectangle on a lane of the picture. Times are relative to the picture's start, in nanoseconds."""

    start_ns: int
    duration_ns: int
    lane: str
    name: str
    from_graph: bool = False


@dataclass(frozen=True, slots=True)
class StepPicture:
    """One typical step for people's eyes: calls on the host, kernels and copies by stream; at most 4,000 spans."""

    duration_ns: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything one file said. Shape: `pictures` by workload key; windows of one workload are in order of time."""

    kind: RecordingKind
    source: str
    windows: tuple[Window, ...]
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    configs: Mapping[str, EngineConfig] = field(default_factory=dict)
    pictures: Mapping[str, StepPicture] = field(default_factory=dict)
