"""Puts a filled timeline in order: sorts, drops what cannot be true, joins activities with calls, finds graphs."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Final

from replaywatch.sources.calls import MEMSET, REPLAY
from replaywatch.sources.timeline import DeviceTrack, HostThread, Timeline

# Kernels that share one correlation id came from one graph launch, where no launch call says so.
FEWEST_SHARED: Final = 3
# A record longer than this on an in-order stream, with later records of that stream inside it, cannot be true.
SUSPECT_NS: Final = 5_000_000
SWALLOWED: Final = 8


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

    Not those with ids below all recorded calls: they were launched before the recording, nobody saw how.
    """
    pairs = list(zip(track.correlation, track.launched_ns, strict=True))
    first = min((c for c, launched in pairs if launched >= 0 and c > 0), default=1)
    orphans = Counter(c for c, launched in pairs if launched < 0 and c >= first)
    shared = {c for c, n in orphans.items() if n >= FEWEST_SHARED}
    if shared:
        for i, (correlation, launched) in enumerate(pairs):
            if launched < 0 and correlation in shared:
                track.graph[i] = 1
