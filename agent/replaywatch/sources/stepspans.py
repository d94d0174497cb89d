"""Steps on the device's own clock: when each began, how long it took until the next, and which ones are typical."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, median_low
from typing import Final

from replaywatch.contract.window import Mode, Phase
from replaywatch.sources.calls import CAPTURE_BEGIN, CAPTURE_END, LAUNCH, REPLAY
from replaywatch.sources.steps import StepPlan
from replaywatch.sources.timeline import KERNEL, WHOLE_GRAPH, DeviceTrack, HostThread

# A step this many times longer than the median holds something else: an idle stretch, a capture, a recompilation.
OUTLIER_RATIO: Final = 1.8
# A first step that differs this much is a warm-up.
_WARM_UP_PERIOD: Final = 1.3
_WARM_UP_KERNELS: Final = 0.1
_FEWEST_FOR_MEDIAN: Final = 3
# Share of steps with a capture inside from which captures are how this workload runs, not an interruption.
_THRASH_SHARE: Final = 0.5
# Share of the typical number of kernels from which a step that captures also did its work.
_DID_ITS_WORK: Final = 0.5
# Rule of the modes, by share of a step's kernels that came from graphs and number of replays.
FULL_SHARE: Final = 0.9
FULL_REPLAYS: Final = 3
EAGER_SHARE: Final = 0.05


@dataclass(slots=True)
class StepSpan:
    """One step on the device: [begin_ns, end_ns) is its period, start of its first activity to start of the next's."""

    index: int
    phase: Phase | None
    batch_size: int | None
    begin_ns: int
    end_ns: int
    last_end_ns: int
    kernels: int = 0
    graph_kernels: int = 0
    graph_ns: int = 0
    kernel_ns: int = 0
    replays: set[int] = field(default_factory=set)
    captures: bool = False
    counts: bool = True
    clean: bool = True

    @property
    def period_ns(self) -> int:
        """Length of the period."""
        return self.end_ns - self.begin_ns

    @property
    def mode(self) -> Mode:
        """full: at least 90 % of the kernels from at most 3 replays; eager: none or below 5 %; else piecewise."""
        share = self.graph_kernels / self.kernels if self.kernels else 0.0
        if not self.replays or share < EAGER_SHARE:
            return "eager"
        return "full" if share >= FULL_SHARE and len(self.replays) <= FULL_REPLAYS else "piecewise"


def step_spans(track: DeviceTrack, plan: StepPlan, threads: list[HostThread]) -> list[StepSpan]:
    """All steps that put something on the device, in order of their begin, with `counts` and `clean` set."""
    found: dict[int, StepSpan] = {}
    for i, index in enumerate(plan.member):
        if index >= 0:
            span = found.get(index)
            if span is None:
                step = plan.steps[index]
                begin, end = track.start[i], track.end[i]
                span = found[index] = StepSpan(index, step.phase, step.batch_size, begin, end, end)
            _count(span, track, i)
    spans = sorted(found.values(), key=lambda s: s.begin_ns)
    for span, following in pairwise(spans):
        span.end_ns = following.begin_ns
    if spans:
        spans[-1].end_ns = max(spans[-1].last_end_ns, _host_end(plan, spans[-1], threads))
    _mark_captures(plan, spans, threads, track)
    _mark_counted(spans)
    _mark_clean(spans)
    return spans


def _count(span: StepSpan, track: DeviceTrack, i: int) -> None:
    span.last_end_ns = max(span.last_end_ns, track.end[i])
    kind = track.kind[i]
    if kind in (KERNEL, WHOLE_GRAPH):
        weight = track.weights.get(i, 1)
        length = track.end[i] - track.start[i]
        span.kernels += weight
        span.kernel_ns += length
        if track.graph[i]:
            span.graph_kernels += weight
            span.graph_ns += length
            span.replays.add(track.correlation[i])


def _host_end(plan: StepPlan, span: StepSpan, threads: list[HostThread]) -> int:
    """When the host was done with a step: its last recorded event, at most the step's own end.

    What a profiler does while it stops happens inside the last annotation, but is no recorded call of the step.
    """
    step = plan.steps[span.index]
    latest = step.start_ns
    for thread in threads:
        place = bisect_left(thread.start, step.end_ns) - 1
        if place >= 0:
            latest = max(latest, thread.end[place])
        for column in (thread.cpu_ops, thread.runtime_calls):
            place = bisect_left(column, step.end_ns) - 1
            if place >= 0:
                latest = max(latest, column[place])
    return min(latest, step.end_ns)


def _mark_captures(plan: StepPlan, spans: list[StepSpan], threads: list[HostThread], track: DeviceTrack) -> None:
    """Mark steps with a capture inside, or whose launches mostly never ran: they were recorded into a graph."""
    own = set(track.correlation)
    for span in spans:
        step = plan.steps[span.index]
        launches = ran = 0
        for thread in threads:
            for i in range(bisect_left(thread.start, step.start_ns), bisect_left(thread.start, step.end_ns)):
                kind = thread.kind[i]
                if kind in (CAPTURE_BEGIN, CAPTURE_END):
                    span.captures = True
                elif kind in (LAUNCH, REPLAY):
                    launches += 1
                    ran += thread.correlation[i] in own
        if launches and ran < launches / 2:
            span.captures = True


def _mark_counted(spans: list[StepSpan]) -> None:
    """A step that only captured is no step; one that captured and then did its work is one."""
    typical = median([s.kernels for s in spans if not s.captures] or [1])
    for span in spans:
        span.counts = not span.captures or span.kernels >= _DID_ITS_WORK * typical


def _mark_clean(spans: list[StepSpan]) -> None:
    """Leave out what is not typical: captures, outliers, a warm-up, the last step, whose period has no next start."""
    capturing = sum(s.captures for s in spans)
    thrashes = capturing >= _THRASH_SHARE * len(spans)
    for span in spans:
        span.clean = span.period_ns > 0 and (thrashes or not span.captures)
    _mark_ends(spans)
    by_phase: dict[Phase | None, list[StepSpan]] = defaultdict(list)
    for span in spans:
        if span.clean:
            by_phase[span.phase].append(span)
    for of_phase in by_phase.values():
        for group in _by_mode(of_phase):
            _mark_untypical(group)
    if not any(s.clean for s in spans):
        for span in spans:
            span.clean = span.period_ns > 0


def _by_mode(spans: list[StepSpan]) -> list[list[StepSpan]]:
    """Steps of one mode are compared with each other: eager steps past a ceiling are no outliers of replayed ones.

    A single step of its mode is compared with the commonest mode: it is a warm-up or an accident.
    """
    groups: dict[Mode, list[StepSpan]] = defaultdict(list)
    for span in spans:
        groups[span.mode].append(span)
    commonest = max(groups, key=lambda mode: len(groups[mode]))
    alone = [mode for mode, group in groups.items() if len(group) == 1 and mode != commonest]
    groups[commonest] = sorted([*groups[commonest], *(groups.pop(m)[0] for m in alone)], key=lambda s: s.begin_ns)
    return list(groups.values())


def _mark_ends(spans: list[StepSpan]) -> None:
    """Of two and more steps the last one is not needed, unless the first of two was a warm-up."""
    if len(spans) == 2 and _is_warm_up(spans[0], spans[1].kernels, spans[1].period_ns):
        spans[0].clean = not spans[1].clean
    elif len(spans) >= 2 and any(s.clean for s in spans[:-1]):
        spans[-1].clean = False


def _is_warm_up(first: StepSpan, kernels: float, period_ns: float) -> bool:
    more = first.kernels > (1 + _WARM_UP_KERNELS) * kernels
    fewer = first.kernels < (1 - _WARM_UP_KERNELS) * kernels
    return (more or fewer) and first.period_ns > period_ns


def _mark_untypical(group: list[StepSpan]) -> None:
    typical_ns = median_low(s.period_ns for s in group)
    kernels = median(s.kernels for s in group)
    for span in group:
        span.clean = span.period_ns <= OUTLIER_RATIO * typical_ns
    first = group[0]
    if len(group) >= _FEWEST_FOR_MEDIAN:
        differs = abs(first.kernels - kernels) > _WARM_UP_KERNELS * kernels
        if differs or first.period_ns > _WARM_UP_PERIOD * typical_ns:
            first.clean = False
