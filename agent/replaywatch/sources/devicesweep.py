"""One sweep over a device's activities in order of time: busy time as a union, gaps by what they separate, copies."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from replaywatch.contract.window import Phase
from replaywatch.sources.stepspans import StepSpan
from replaywatch.sources.timeline import KERNEL, MEMCPY, WHOLE_GRAPH, DeviceTrack
from replaywatch.sources.worksums import WorkSums

# An idle stretch without launches is taken out of the total span when it is longer than this many steps.
_IDLE_STEPS: Final = 2
# Where no step length is known: this many times the 99th percentile of the gaps, and at least 50 ms.
_IDLE_GAPS: Final = 100
_SHORTEST_IDLE_NS: Final = 50_000_000
_MOSTLY_GRAPH: Final = 0.5

Sums = dict["Phase | None", WorkSums]


def idle_limit_ns(track: DeviceTrack, spans: list[StepSpan]) -> int:
    """Length from which an idle stretch without launches counts as a pause, not as part of the work."""
    periods = sorted(s.period_ns for s in spans if s.clean)
    if len(periods) >= 3:
        return _IDLE_STEPS * periods[len(periods) // 2]
    gaps = []
    latest = track.start[0]
    for start, end in zip(track.start, track.end, strict=True):
        if start > latest:
            gaps.append(start - latest)
        latest = max(latest, end)
    gaps.sort()
    typical = gaps[int(len(gaps) * 0.99)] if len(gaps) >= 20 else 0
    return max(_SHORTEST_IDLE_NS, _IDLE_GAPS * typical) if typical else 1 << 62


class DeviceSweep:
    """Sweeps one device's track into the sums of its phases. Use: `DeviceSweep(...).run()`, once."""

    def __init__(
        self, track: DeviceTrack, spans: list[StepSpan], launches: list[int], texts: list[str], sums: Sums
    ) -> None:
        self.track = track
        self.copy_names, self.fetch_names = _copying_names(texts), _fetching_names(texts)
        self.spans = spans
        self.launches = launches
        self.sums = sums
        self.idle_ns = idle_limit_ns(track, spans)
        self.place = -1
        main = max(spans, key=lambda s: s.kernels, default=None)
        self.current = sums[main.phase if main else None]
        self.clean: StepSpan | None = None
        self.border = spans[0].begin_ns if spans else 1 << 62
        self.pending: list[int] = []

    def run(self) -> None:
        """Walk the track once."""
        track = self.track
        starts, ends, graph, kinds, correlation = track.start, track.end, track.graph, track.kind, track.correlation
        latest_end = starts[0]
        last = 0
        graph_end = 0
        for i in range(len(starts)):
            start, end = starts[i], ends[i]
            if start > latest_end:
                self._gap(last, i, latest_end, start)
                latest_end = start
            if start >= self.border:
                self._advance(start)
            if end > latest_end:
                self._busy(latest_end, end)
                latest_end = end
                last = i
            if graph[i]:
                if self.clean is not None and end > graph_end:
                    self.current.graph_busy_ns += end - max(start, graph_end)
                graph_end = max(graph_end, end)
                if i == 0 or not graph[i - 1] or correlation[i] != correlation[i - 1]:
                    self._inputs_done()
            kind = kinds[i]
            if kind in (KERNEL, WHOLE_GRAPH):
                weight = track.weights.get(i, 1)
                self.current.total_kernels += weight
                if graph[i]:
                    self.current.total_graph_kernels += weight
            if not graph[i] and self._is_copy(i):
                self.pending.append(i)
        self._after_last()

    def _advance(self, now_ns: int) -> None:
        """Move to the step whose period holds a moment."""
        while now_ns >= self.border:
            self.place += 1
            if self.place >= len(self.spans):
                self.clean = None
                self.border = 1 << 62
                return
            span = self.spans[self.place]
            self.current = self.sums[span.phase]
            self.clean = span if span.clean else None
            self.border = span.end_ns

    def _busy(self, begin: int, end: int) -> None:
        """Count busy time, split at the borders of steps."""
        while end > self.border:
            if self.border > begin:
                self._count_busy(self.border - begin)
                begin = self.border
            self._advance(begin)
        self._count_busy(end - begin)

    def _count_busy(self, length: int) -> None:
        self.current.total_busy_ns += length
        self.current.total_span_ns += length
        if self.clean is not None:
            self.current.busy_ns += length

    def _gap(self, before: int, after: int, begin: int, end: int) -> None:
        """Count an idle stretch by what it separates."""
        length = end - begin
        if length > self.idle_ns and not self._launched_within(begin, end):
            # A pause belongs to no work. Only a step that has no others to compare with can be clean with one inside.
            if self.clean is not None:
                self.current.span_ns -= length
            return
        self.current.total_span_ns += length
        if self.clean is None or end > self.border:
            return
        track, sums = self.track, self.current
        if not track.graph[before]:
            if end < self.border:
                sums.launch_gaps.add(length)
        elif track.graph[after] and track.correlation[before] == track.correlation[after]:
            sums.in_graph_gap_ns += length
            sums.in_graph_gaps += 1
        else:
            sums.replay_gap_ns += length
            sums.replay_gaps.add(length)

    def _launched_within(self, begin: int, end: int) -> bool:
        place = bisect_left(self.launches, begin)
        return place < len(self.launches) and self.launches[place] < end - self.idle_ns // 4

    def _after_last(self) -> None:
        """The time after the last activity, up to the end of the last step's period."""
        if self.spans and self.place >= 0 and self.spans[-1].end_ns > self.track.end[-1] and self.clean is not None:
            tail = self.spans[-1].end_ns - max(self.track.end)
            self.current.total_span_ns += max(0, tail)

    def _is_copy(self, i: int) -> bool:
        """Whether an activity moves data on or onto the device: a copy record, or a kernel that copies."""
        track = self.track
        return track.kind[i] == MEMCPY or (track.kind[i] == KERNEL and track.name[i] in self.copy_names)

    def _inputs_done(self) -> None:
        """A replay begins: the copies since the last one were its inputs, where the step is mostly graphs."""
        span, track = self.clean, self.track
        if span is not None and span.graph_kernels >= _MOSTLY_GRAPH * span.kernels:
            for i in self.pending:
                if track.name[i] not in self.fetch_names and track.start[i] >= span.begin_ns:
                    self.current.input_copies += 1
                    self.current.input_copy_ns += track.end[i] - track.start[i]
                    self.current.input_copy_bytes += track.size[i] if track.kind[i] == MEMCPY else 0
        self.pending.clear()


def _copying_names(texts: list[str]) -> frozenset[int]:
    """Numbers of the names of kernels that copy (not those that concatenate)."""
    return frozenset(n for n, text in enumerate(texts) if "copy" in (low := text.lower()) and "catarray" not in low)


def _fetching_names(texts: list[str]) -> frozenset[int]:
    """Numbers of the names of copies from the device to the host."""
    return frozenset(n for n, text in enumerate(texts) if "DtoH" in text or "Device-to-Host" in text)
