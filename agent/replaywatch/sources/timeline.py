"""`Timeline`: what any tracer saw, in columns: device activities, host calls, annotations.

Readers fill it (`kineto`, `nsys`), `settling` puts it in order and joins each device activity with the call that
launched it; `steps` and `measure` only read it. Times are integer nanoseconds on the trace's own
clock, -1 where unknown.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Engine, TraceMethod
from replaywatch.sources.annotations import is_inner
from replaywatch.sources.calls import COPY, LAUNCH, MEMSET, REPLAY

KERNEL: Final = 0
MEMCPY: Final = 1
MEMFILL: Final = 2
# One record for a whole replay (graph-level tracing); its kernels are not listed.
WHOLE_GRAPH: Final = 3

LONGEST_NS: Final = 600 * 1_000_000_000
MOST_NAMES: Final = 200_000
MOST_ANNOTATIONS: Final = 1_000_000


def _column() -> array[int]:
    return array("q")


class Names:
    """Texts by number, each kept once."""

    __slots__ = ("ids", "texts")

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.texts: list[str] = []

    def id(self, text: str) -> int:
        """Number of a text; texts past MOST_NAMES share the number of the first."""
        number = self.ids.get(text)
        if number is None:
            if len(self.texts) >= MOST_NAMES:
                return 0
            number = self.ids[text] = len(self.texts)
            self.texts.append(text)
        return number


@dataclass(slots=True)
class DeviceTrack:
    """Activities of one device, by start after `settle`; all columns have one entry per activity.

    Shape: `kind` KERNEL, MEMCPY, MEMFILL or WHOLE_GRAPH; `name` numbers of `Timeline.names`; `graph` 1 where the
    activity belongs to a replay; `weight` kernels a WHOLE_GRAPH record stands for; `launched_ns` start of the launching
    call and `call_ns` its length, -1 where no call was recorded; `thread` its index in `Timeline.threads`, or -1.
    """

    process: int
    device: int
    start: array[int] = field(default_factory=_column)
    end: array[int] = field(default_factory=_column)
    correlation: array[int] = field(default_factory=_column)
    stream: array[int] = field(default_factory=_column)
    size: array[int] = field(default_factory=_column)
    name: array[int] = field(default_factory=lambda: array("i"))
    kind: array[int] = field(default_factory=lambda: array("B"))
    graph: array[int] = field(default_factory=lambda: array("B"))
    launched_ns: array[int] = field(default_factory=_column)
    call_ns: array[int] = field(default_factory=_column)
    thread: array[int] = field(default_factory=lambda: array("i"))
    weights: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def reorder(self, order: list[int]) -> None:
        """Keep the activities at these positions, in this order."""
        for column in ("start", "end", "correlation", "stream", "size", "name", "kind", "graph"):
            old = getattr(self, column)
            setattr(self, column, array(old.typecode, [old[i] for i in order]))


@dataclass(slots=True)
class HostThread:
    """Calls of one host thread, by start after `settle`.

    Shape: `start`, `end`, `correlation`, `kind` (see `calls`) for the calls that matter to the device; `cpu_ops`,
    `python_calls`, `runtime_calls` start times of all recorded host events of that sort, sorted.
    """

    process: int
    tid: str
    start: array[int] = field(default_factory=_column)
    end: array[int] = field(default_factory=_column)
    correlation: array[int] = field(default_factory=_column)
    kind: array[int] = field(default_factory=lambda: array("B"))
    blocking: set[int] = field(default_factory=set)
    cpu_ops: array[int] = field(default_factory=_column)
    python_calls: array[int] = field(default_factory=_column)
    runtime_calls: array[int] = field(default_factory=_column)

    def reorder(self, order: list[int]) -> None:
        """Keep the calls at these positions, in this order."""
        for column in ("start", "end", "correlation", "kind"):
            old = getattr(self, column)
            setattr(self, column, array(old.typecode, [old[i] for i in order]))


@dataclass(slots=True)
class Annotation:
    """A named stretch of host time: a user annotation or an NVTX range."""

    name: str
    start_ns: int
    end_ns: int
    process: int
    tid: str


@dataclass(slots=True)
class Timeline:
    """Everything a trace says, before it is judged. `base_ns` is what to add for Unix time."""

    method: TraceMethod = "kineto"
    names: Names = field(default_factory=Names)
    devices: dict[tuple[int, int], DeviceTrack] = field(default_factory=dict)
    threads: list[HostThread] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    dropped: int = 0
    base_ns: int = 0
    rank: int | None = None
    engine: Engine = "unknown"
    model_name: str | None = None
    trains: bool = False
    has_cpu_events: bool = False
    gaps_are_evidence: bool = True
    fingerprints: dict[int, Fingerprint] = field(default_factory=dict)
    config: EngineConfig | None = None
    blind: list[BlindSpot] = field(default_factory=list)
    failed_calls: Counter[str] = field(default_factory=Counter)
    inner_names: dict[str, bool] = field(default_factory=dict)
    thread_by_key: dict[tuple[int, str], HostThread] = field(default_factory=dict)

    def track(self, process: int, device: int) -> DeviceTrack:
        """The track of a device, made when first asked for."""
        found = self.devices.get((process, device))
        if found is None:
            found = self.devices[process, device] = DeviceTrack(process, device)
        return found

    def annotate(self, name: str, start_ns: int, end_ns: int, process: int, tid: str) -> None:
        """Keep an annotation that may mark a step, not what libraries open inside steps; too many are dropped."""
        inner = self.inner_names.get(name)
        if inner is None:
            inner = is_inner(name)
            if len(self.inner_names) < MOST_NAMES:
                self.inner_names[name] = inner
        if inner:
            return
        if len(self.annotations) >= MOST_ANNOTATIONS:
            self.dropped += 1
            return
        self.annotations.append(Annotation(name, start_ns, end_ns, process, tid))

    def thread(self, process: int, tid: str) -> HostThread:
        """A host thread, made when first asked for."""
        found = self.thread_by_key.get((process, tid))
        if found is None:
            found = self.thread_by_key[process, tid] = HostThread(process, tid)
            self.threads.append(found)
        return found


def launching_threads(timeline: Timeline, track: DeviceTrack) -> list[HostThread]:
    """The host threads that launched work of a device, the busiest first."""
    share = Counter(track.thread)
    share.pop(-1, None)
    return [timeline.threads[number] for number, _ in share.most_common()]


def launch_starts(threads: list[HostThread]) -> Iterator[int]:
    """Start times of all launching calls of some threads."""
    for thread in threads:
        for start, kind in zip(thread.start, thread.kind, strict=True):
            if kind in (LAUNCH, REPLAY, COPY, MEMSET):
                yield start
