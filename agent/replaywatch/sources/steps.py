"""Where steps are: from profiler steps, engine annotations, other repeated annotations, the launch pattern, or nowhere.

Activities belong to the step whose host interval holds their launch. Activities without a recorded launch belong to the
step around them on their stream.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from replaywatch.contract.window import Phase
from replaywatch.sources.annotations import PROFILER_STEP, engine_label, family
from replaywatch.sources.launchpattern import find_anchor
from replaywatch.sources.timeline import WHOLE_GRAPH, Annotation, DeviceTrack, Timeline

StepSource = Literal["profiler", "engine", "annotation", "pattern", "whole"]

FEWEST_REPEATS: Final = 3
# Share of the launches that a repeated annotation must hold to be taken for the step.
_COVERS: Final = 0.7
# Share of activities without a recorded launch above which their order on the device is used instead of the host's.
_UNMATCHED_SHARE: Final = 0.05


@dataclass(slots=True)
class HostStep:
    """A step as the host saw it. `end_ns` is the start of the next step, or where the last one's annotation ends."""

    start_ns: int
    end_ns: int
    name: str = ""
    phase: Phase | None = None
    batch_size: int | None = None


@dataclass(slots=True)
class StepPlan:
    """Steps and membership. Shape: `member` holds per activity the index of its step, or -1."""

    source: StepSource
    steps: list[HostStep]
    member: array[int]


def plan_steps(timeline: Timeline, track: DeviceTrack) -> StepPlan:
    """The steps of one device, from the best signal that there is."""
    launches = sorted(ns for ns in track.launched_ns if ns >= 0)
    if launches:
        own = [a for a in timeline.annotations if a.process == track.process or not track.process]
        for source, found in (
            ("engine", _labelled(own)),
            ("profiler", _matching(own, lambda name: bool(PROFILER_STEP.match(name)))),
            ("annotation", _repeated(own, launches)),
        ):
            if any(_count_inside(launches, a.start_ns, a.end_ns) for a in found):
                return _from_annotations(source, found, track)  # type: ignore[arg-type]
    return _from_pattern(track) or _whole(track)


def _count_inside(launches: list[int], start_ns: int, end_ns: int) -> int:
    return bisect_left(launches, end_ns) - bisect_left(launches, start_ns)


# -- annotations -------------------------------------------------------------------------------------------------------


def _labelled(own: list[Annotation]) -> list[Annotation]:
    """Engine annotations, unless profiler steps are more numerous and so finer."""
    found = _matching(own, lambda name: engine_label(name) is not None)
    return found if len(found) >= len(_matching(own, lambda name: bool(PROFILER_STEP.match(name)))) else []


def _matching(own: list[Annotation], wanted: Callable[[str], bool]) -> list[Annotation]:
    """Annotations of a sort on the thread that has most of them, without those nested in one another."""
    by_thread: dict[tuple[int, str], list[Annotation]] = defaultdict(list)
    for annotation in own:
        if wanted(annotation.name):
            by_thread[annotation.process, annotation.tid].append(annotation)
    return _outermost(max(by_thread.values(), key=len, default=[]))


def _outermost(sorted_by_start: list[Annotation]) -> list[Annotation]:
    kept: list[Annotation] = []
    for annotation in sorted_by_start:
        if not kept or annotation.start_ns >= kept[-1].end_ns:
            kept.append(annotation)
    return kept


def _repeated(own: list[Annotation], launches: list[int]) -> list[Annotation]:
    """The longest repeated annotation that holds most launches."""
    families: dict[tuple[str, int, str], list[Annotation]] = defaultdict(list)
    for annotation in own:
        if not PROFILER_STEP.match(annotation.name):
            families[family(annotation.name), annotation.process, annotation.tid].append(annotation)
    best: list[Annotation] = []
    longest_ns = 0.0
    for group in families.values():
        kept = _outermost(group)
        if len(kept) < FEWEST_REPEATS:
            continue
        covered = sum(_count_inside(launches, a.start_ns, a.end_ns) for a in kept)
        typical_ns = median(a.end_ns - a.start_ns for a in kept)
        if covered >= _COVERS * len(launches) and typical_ns > longest_ns:
            best, longest_ns = kept, typical_ns
    return best


def _from_annotations(source: StepSource, found: list[Annotation], track: DeviceTrack) -> StepPlan:
    steps = []
    for number, annotation in enumerate(found):
        label = engine_label(annotation.name)
        end_ns = found[number + 1].start_ns if number + 1 < len(found) else annotation.end_ns
        phase, batch = (label.phase, label.batch_size) if label else (None, None)
        steps.append(HostStep(annotation.start_ns, end_ns, annotation.name, phase, batch))
    starts = [s.start_ns for s in steps]
    member = array("i", bytes(4 * len(track)))
    for i, launched in enumerate(track.launched_ns):
        place = bisect_right(starts, launched) - 1 if launched >= 0 else -1
        member[i] = place if place >= 0 and launched < steps[place].end_ns else -1
    _adopt_unmatched(track, member)
    return StepPlan(source, steps, member)


def _adopt_unmatched(track: DeviceTrack, member: array[int]) -> None:
    """Give activities without a launch the step that surrounds them on their stream."""
    waiting: dict[int, list[int]] = defaultdict(list)
    last: dict[int, int] = {}
    for i, launched in enumerate(track.launched_ns):
        stream = track.stream[i]
        if launched < 0:
            waiting[stream].append(i)
            continue
        if waiting[stream] and last.get(stream, -1) == member[i]:
            for j in waiting[stream]:
                member[j] = member[i]
        waiting[stream].clear()
        last[stream] = member[i]


# -- no annotations ----------------------------------------------------------------------------------------------------


def _launch_order(track: DeviceTrack) -> list[int]:
    """Activities in the order of their launches, or of their starts where launches are unknown."""
    unmatched = sum(ns < 0 for ns in track.launched_ns)
    if unmatched > _UNMATCHED_SHARE * len(track):
        return list(range(len(track)))
    matched = [i for i, ns in enumerate(track.launched_ns) if ns >= 0]
    return sorted(matched, key=lambda i: (track.launched_ns[i], track.start[i]))


def _launches(track: DeviceTrack, order: list[int]) -> list[tuple[int, int, int]]:
    """Launches as (first place in the order, place after the last, token); a replay is one launch.

    The token of a replay tells graphs apart by their first kernel and their size, that of a kernel is its name.
    """
    found: list[tuple[int, int, int]] = []
    tokens: dict[tuple[int, int], int] = {}
    place = 0
    while place < len(order):
        i = order[place]
        after = place + 1
        if track.graph[i]:
            while after < len(order) and track.graph[order[after]] and _same_replay(track, i, order[after]):
                after += 1
        size = after - place if track.graph[i] else 0
        if track.kind[i] == WHOLE_GRAPH:
            size = -1
        found.append((place, after, tokens.setdefault((track.name[i], size), len(tokens))))
        place = after
    return found


def _same_replay(track: DeviceTrack, i: int, j: int) -> bool:
    return track.correlation[i] == track.correlation[j] and track.kind[i] != WHOLE_GRAPH


def _from_pattern(track: DeviceTrack) -> StepPlan | None:
    order = _launch_order(track)
    launches = _launches(track, order)
    idle: list[int] = []
    latest_end = track.end[order[0]] if order else 0
    for begin, after, _ in launches:
        idle.append(max(0, track.start[order[begin]] - latest_end))
        latest_end = max(latest_end, *(track.end[order[p]] for p in range(begin, after)))
    anchor = find_anchor([t for _, _, t in launches], idle, [bool(track.graph[order[b]]) for b, _, _ in launches])
    if anchor is None:
        return None
    member = array("i", [-1]) * len(track)
    steps: list[HostStep] = []
    for begin, after, token in launches:
        if token == anchor:
            _begin_step(steps, track, order[begin])
        for place in range(begin, after):
            member[order[place]] = len(steps) - 1
    _end_last(steps, track, member)
    _adopt_unmatched(track, member)
    return StepPlan("pattern", steps, member)


def _begin_step(steps: list[HostStep], track: DeviceTrack, i: int) -> None:
    begin_ns = track.launched_ns[i] if track.launched_ns[i] >= 0 else track.start[i]
    if steps:
        steps[-1].end_ns = begin_ns
    steps.append(HostStep(begin_ns, begin_ns))


def _end_last(steps: list[HostStep], track: DeviceTrack, member: array[int]) -> None:
    last = len(steps) - 1
    ends = [
        track.launched_ns[i] + track.call_ns[i] if track.launched_ns[i] >= 0 else track.end[i]
        for i in range(len(track))
        if member[i] == last
    ]
    steps[-1].end_ns = max([steps[-1].start_ns, *ends])


def _whole(track: DeviceTrack) -> StepPlan:
    """The whole stretch as one step."""
    launched = [ns for ns in track.launched_ns if ns >= 0]
    ends = [ns + length for ns, length in zip(track.launched_ns, track.call_ns, strict=True) if ns >= 0]
    start_ns, end_ns = (min(launched), max(ends)) if launched else (track.start[0], max(track.end))
    return StepPlan("whole", [HostStep(start_ns, end_ns)], array("i", bytes(4 * len(track))))
