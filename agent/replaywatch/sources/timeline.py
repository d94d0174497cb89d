"""`Timeline`: what any tracer saw, in columns: device activities, host calls, annotations.

Readers fill it (`kineto`, `nsys`), `settle` puts it in order and joins each device activity with the call that launched
it; `steps` and `measure` only read it. Times are integer nanoseconds on the trace's own clock, -1 where unknown.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Engine, TraceMethod
from replaywatch.sources.calls import COPY, LAUNCH, MEMSET, REPLAY

KERNEL: Final = 0
MEMCPY: Final = 1
MEMFILL: Final = 2
# One record for a whole replay (graph-level tracing); its kernels are not listed.
WHOLE_GRAPH: Final = 3

# Kernels that share one correlation id came from one graph launch, where no launch call says so.
FEWEST_SHARED: Final = 3
# A record longer than this on an in-order stream, with later records of that stream inside it, cannot be true.
SUSPECT_NS: Final = 5_000_000
SWALLOWED: Final = 8
LONGEST_NS: Final = 600 * 1_000_000_000
MOST_NAMES: Final = 200_000


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
    thread_by_key: dict[tuple[int, str], HostThread] = field(default_factory=dict)

    def track(self, process: int, device: int) -> DeviceTrack:
        """The track of a device, made when first asked for."""
        found = self.devices.get((process, device))
        if found is None:
            found = self.devices[process, device] = DeviceTrack(process, device)
        return found

    def thread(self, process: int, tid: str) -> HostThread:
        """A host thread, made when first asked for."""
        found = self.thread_by_key.get((process, tid))
        if found is None:
            found = self.thread_by_key[process, tid] = HostThread(process, tid)
            self.threads.append(found)
        return found


def settle(timeline: Timeline) -> None:
    """Order all columns by time, drop impossible records (counted), join activities with calls, mark graph members."""
    for thread in timeline.threads:
        _settle_thread(thread)
    timeline.annotations.sort(key=lambda a: (a.start_ns, -a.end_ns))
    for track in timeline.devices.values():
        _sort_by_start(track)
        timeline.dropped += _drop_impossible(track)
    if timeline.method != "nsys":
        _find_processes(timeline)
    calls: dict[int, dict[int, tuple[int, int]]] = {}
    for track in timeline.devices.values():
        if track.process not in calls:
            calls[track.process] = _call_index(timeline, track.process)
        _join(timeline, track, calls[track.process])
        _mark_graphs(track)


def _is_sorted(column: array[int]) -> bool:
    return all(map(int.__le__, column, column[1:]))


def _sort_by_start(track: DeviceTrack) -> None:
    if not _is_sorted(track.start):
        start = track.start
        track.reorder(sorted(range(len(start)), key=start.__getitem__))


def _settle_thread(thread: HostThread) -> None:
    if not _is_sorted(thread.start):
        start = thread.start
        thread.reorder(sorted(range(len(start)), key=start.__getitem__))
    for name in ("cpu_ops", "python_calls", "runtime_calls"):
        column = getattr(thread, name)
        if not _is_sorted(column):
            setattr(thread, name, array("q", sorted(column)))


def _drop_impossible(track: DeviceTrack) -> int:
    """Drop records that reach over many later records of their own stream; how many were dropped."""
    start, end, stream = track.start, track.end, track.stream
    suspects = [i for i in range(len(start)) if end[i] - start[i] > SUSPECT_NS]
    bad = {i for i in suspects if _swallows(i, start, end, stream, track.correlation)}
    if bad:
        track.reorder([i for i in range(len(start)) if i not in bad])
    return len(bad)


def _swallows(
    i: int, start: array[int], end: array[int], stream: array[int], correlation: array[int], look: int = 64
) -> bool:
    inside = 0
    for j in range(i + 1, min(len(start), i + 1 + look)):
        if end[j] > end[i]:
            break
        inside += stream[j] == stream[i] and correlation[j] != correlation[i]
        if inside >= SWALLOWED:
            return True
    return False


def _find_processes(timeline: Timeline) -> None:
    """Give each device the process whose calls launched most of its work (a device's events do not name theirs)."""
    processes = {t.process for t in timeline.threads if len(t.start)}
    if not processes:
        return
    if len(processes) == 1:
        owner_of = dict.fromkeys(timeline.devices, next(iter(processes)))
    else:
        known = {p: _call_index(timeline, p).keys() for p in sorted(processes)}
        owner_of = {
            key: max(known, key=lambda p: sum(c in known[p] for c in track.correlation[:5000]))
            for key, track in timeline.devices.items()
        }
    for key, track in timeline.devices.items():
        track.process = owner_of[key]


def _call_index(timeline: Timeline, process: int) -> dict[int, tuple[int, int]]:
    """Launching calls of a process: correlation id to (index of the thread, index of the call)."""
    found: dict[int, tuple[int, int]] = {}
    for number, thread in enumerate(timeline.threads):
        if thread.process == process:
            kind, correlation = thread.kind, thread.correlation
            for i in range(len(kind)):
                if kind[i] <= MEMSET:
                    found[correlation[i]] = (number, i)
    return found


def _join(timeline: Timeline, track: DeviceTrack, calls: dict[int, tuple[int, int]]) -> None:
    """Fill the launch columns, and mark members of recorded graph launches."""
    launched, lengths, threads = track.launched_ns, track.call_ns, track.thread
    for i, correlation in enumerate(track.correlation):
        place = calls.get(correlation)
        if place is None:
            launched.append(-1)
            lengths.append(-1)
            threads.append(-1)
            continue
        thread = timeline.threads[place[0]]
        begin = thread.start[place[1]]
        launched.append(begin)
        lengths.append(thread.end[place[1]] - begin)
        threads.append(place[0])
        if thread.kind[place[1]] == REPLAY:
            track.graph[i] = 1


def _mark_graphs(track: DeviceTrack) -> None:
    """Mark kernels without a recorded call that share their correlation id with enough others.

    Not those before the first activity with a call: they were launched before the recording, nobody saw how.
    """
    launched = track.launched_ns
    first = next((i for i, ns in enumerate(launched) if ns >= 0), 0)
    orphans = Counter(track.correlation[i] for i in range(first, len(track)) if launched[i] < 0)
    shared = {c for c, n in orphans.items() if n >= FEWEST_SHARED and c > 0}
    if shared:
        for i in range(first, len(track)):
            if launched[i] < 0 and track.correlation[i] in shared:
                track.graph[i] = 1


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
