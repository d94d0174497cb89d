"""Draws one step for people: launch calls on the host, kernels and copies by stream."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from replaywatch.sources.calls import LAUNCH, REPLAY, WAIT
from replaywatch.sources.recording import Span, StepPicture
from replaywatch.sources.steps import StepPlan
from replaywatch.sources.stepspans import StepSpan
from replaywatch.sources.timeline import DeviceTrack, Timeline, launching_threads

MOST_DEVICE_SPANS: Final = 3000
MOST_HOST_SPANS: Final = 1000
_NAME_LENGTH: Final = 100
_CALL_NAMES: Final = {LAUNCH: "launch", REPLAY: "graph launch", 2: "copy", 3: "memset", WAIT: "wait for the device"}


def draw_step(timeline: Timeline, track: DeviceTrack, plan: StepPlan, span: StepSpan) -> StepPicture:
    """The picture of a step: what of it ran on the device, and the calls of its host interval."""
    device = _device_spans(timeline, track, plan, span)
    host = _host_spans(timeline, track, plan, span)
    shown = [*host, *device]
    origin = min((s.start_ns for s in shown), default=span.begin_ns)
    end = max((s.start_ns + s.duration_ns for s in shown), default=span.end_ns)
    spans = tuple(Span(s.start_ns - origin, s.duration_ns, s.lane, s.name, s.from_graph) for s in shown)
    return StepPicture(max(end, span.end_ns) - origin, spans)


def _longest(spans: list[Span], most: int) -> list[Span]:
    """The longest spans, in order of time."""
    if len(spans) > most:
        spans = sorted(spans, key=lambda s: -s.duration_ns)[:most]
    return sorted(spans, key=lambda s: s.start_ns)


def _device_spans(timeline: Timeline, track: DeviceTrack, plan: StepPlan, span: StepSpan) -> list[Span]:
    texts = timeline.names.texts
    found = []
    for i in range(bisect_left(track.start, span.begin_ns), len(track)):
        if track.start[i] > span.last_end_ns:
            break
        if plan.member[i] == span.index:
            length = track.end[i] - track.start[i]
            name = texts[track.name[i]][:_NAME_LENGTH]
            found.append(Span(track.start[i], length, f"stream {track.stream[i]}", name, bool(track.graph[i])))
    return _longest(found, MOST_DEVICE_SPANS)


def _host_spans(timeline: Timeline, track: DeviceTrack, plan: StepPlan, span: StepSpan) -> list[Span]:
    step = plan.steps[span.index]
    found = []
    for thread in launching_threads(timeline, track):
        first, after = bisect_left(thread.start, step.start_ns), bisect_left(thread.start, step.end_ns)
        for i in range(first, after):
            name = _CALL_NAMES.get(thread.kind[i])
            if name is not None:
                length = thread.end[i] - thread.start[i]
                found.append(Span(thread.start[i], length, f"host {thread.tid}", name, thread.kind[i] == REPLAY))
    return _longest(found, MOST_HOST_SPANS)
