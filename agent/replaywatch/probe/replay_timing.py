"""`ReplayTimer`: device time of one replay in N and of the gap to the next, and replays that never end.

Two CUDA events around a replay cost 11 to 12 us (M9), so few replays are timed. The events are recorded by the thread
that replays, never while anything is captured, and queried later by the helper thread; nothing waits for the device.
The gap runs from a replay's end to the next replay's start and holds whatever else ran in between: it is an upper
bound of the idle time, which only the kernel tracer tells exactly.
"""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter_ns
from typing import Any

from replaywatch.probe.counts import Tally
from replaywatch.probe.cuda_errors import error_name
from replaywatch.probe.driver import relax_capture_mode
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.patching import Function, loaded
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import MASK, GraphSlot, Recorder

MAX_EVENTS = 48
# How often the stream of a thread is noted where nothing is timed; odd, for the turns that launches are timed in.
NOTE_ONE_IN = 61
# Replays of a thread before the first timed one: they may still be uploaded, or compile what they lack.
FIRST = 4
# At most 50 timed replays a second and thread, or 0.06 % at 12 us a pair, however many small graphs make a step.
MIN_SPACING_NS = 20_000_000
SIGNAL = "replay timing"
UNTIMED = (
    "timing is switched off (time-one-in is 0); a replay that never ends is seen only where its thread stands still"
)


class Sample:
    """A replay that is being timed. `next_start` is recorded by the replay after it, on the same stream."""

    __slots__ = ("device", "end", "ended_ns", "graph", "has_next", "measured", "next_start", "start", "stream", "waits")

    def __init__(self, make_event: Function, device: int) -> None:
        self.device = device
        self.start, self.end, self.next_start = (make_event(enable_timing=True) for _ in range(3))
        self.clear()

    def clear(self) -> None:
        """Ready to be used again."""
        self.graph = 0
        self.stream = 0
        self.ended_ns = 0
        self.waits = True
        self.has_next = False
        self.measured = False


class ReplayTimer:
    """Samples on their way; `timed` runs on the replaying thread, `poll` on the helper thread."""

    def __init__(self, ledger: GraphLedger, sight: Sight, hang_seconds: float) -> None:
        self._ledger, self._sight = ledger, sight
        self._hang_ns = int(hang_seconds * 1e9)
        self.reset()

    def reset(self) -> None:
        """Drop all samples; a forked child cannot use its parent's events."""
        self._lock = threading.Lock()
        self._idle: list[Sample] = []
        self._pending: deque[Sample] = deque()
        self._made = 0
        self._stuck: set[tuple[int, int]] = set()
        self.on = True
        if not self._ledger.recorders.time_one_in:
            self._sight.blind(SIGNAL, UNTIMED)
        self.replay = Tally()
        self.gap = Tally()

    def handles(self) -> list[object]:
        """Every CUDA event and stream that the samples hold."""
        samples = [*self._idle, *self._pending, *(r.sample for r in self._ledger.recorders.alive() if r.sample)]
        events = [event for s in samples for event in (s.start, s.end, s.next_start)]
        streams = [*(r.stream for r in self._ledger.recorders.alive()), *self._ledger.capturing.values()]
        return [*events, *(stream for stream in streams if stream is not None)]

    def timed(self, graph: Any, recorder: Recorder, original: Function) -> Any:
        """Replay a graph whose turn it is to be timed, or to end the gap after one that was."""
        sample = self.begin(recorder)
        begin_ns = perf_counter_ns()
        try:
            result = original(graph)
        except BaseException as error:
            self._ledger.call_failed(error, "replay")
            raise
        self.end(graph, recorder, begin_ns, sample)
        return result

    def begin(self, recorder: Recorder) -> Sample | None:
        """Before a replay whose turn it is: a sample whose start is recorded, or None. Never raises."""
        one_in = self._ledger.recorders.time_one_in
        first = not recorder.n
        recorder.left = (min(FIRST, one_in or FIRST) if first else one_in or NOTE_ONE_IN) - 1
        try:
            if self.on:
                _note_stream(recorder)
            return self._begin(recorder) if one_in and not first else None
        except Exception as error:  # the probe's border
            self._fail(error)
            return None

    def end(self, graph: Any, recorder: Recorder, begin_ns: int, sample: Sample | None) -> None:
        """After a replay whose turn it was: count it like any other, and record its end. Never raises."""
        try:
            self._count(graph, recorder, begin_ns, sample)
        except Exception as error:  # the probe's border
            self._fail(error)

    def _count(self, graph: Any, recorder: Recorder, begin_ns: int, sample: Sample | None) -> None:
        end_ns = perf_counter_ns()
        slot = self._ledger.slot_of(graph)
        slot.replays += 1
        # Those that only note a stream come in a fixed turn, which would meet the same graph again and again.
        recorder.rows[recorder.n & MASK] = (begin_ns, 0 if sample is None else end_ns, slot.number)
        recorder.n += 1
        if sample is not None:
            sample.end.record()
            sample.graph, sample.ended_ns = slot.number, perf_counter_ns()
            recorder.sample = sample
            recorder.left = 0  # the next replay ends the gap
            self._pending.append(sample)

    def _begin(self, recorder: Recorder) -> Sample | None:
        """End an open gap, or take a sample and record its start; None when this replay is not timed."""
        open_sample, recorder.sample = recorder.sample, None
        torch = loaded("torch")
        if not self.on or torch is None or self._ledger.capturing or torch.cuda.is_current_stream_capturing():
            if open_sample is not None:
                open_sample.waits = False
            return None
        device = self._ledger.device = int(torch.cuda.current_device())
        stream = torch._C._cuda_getCurrentRawStream(device)
        if open_sample is not None:
            if open_sample.stream == stream and open_sample.device == device:
                open_sample.next_start.record()
                open_sample.has_next = True
            open_sample.waits = False
            return None
        now_ns = perf_counter_ns()
        sample = self._take(torch.cuda.Event, device) if now_ns - recorder.timed_ns >= MIN_SPACING_NS else None
        if sample is not None:
            recorder.timed_ns = now_ns
            sample.stream = stream
            sample.start.record()
        return sample

    def _take(self, make_event: Function, device: int) -> Sample | None:
        with self._lock:
            for at, sample in enumerate(self._idle):
                if sample.device == device:
                    del self._idle[at]
                    return sample
            if self._made >= MAX_EVENTS // 3:
                return None
            self._made += 1
        return Sample(make_event, device)

    def poll(self, now_ns: int) -> None:
        """Read what has ended, and notice what has not for too long. Runs on the helper thread, waits for nothing."""
        if not self._pending or not self.on or self._ledger.capturing:
            return
        if not relax_capture_mode():
            self.on = False
            self._sight.blind(SIGNAL, "the driver does not let a second thread query events during captures")
            return
        try:
            for _ in range(len(self._pending)):
                sample = self._pending.popleft()
                if not self._read(sample, now_ns):
                    self._pending.append(sample)
        except Exception as error:  # the probe's border; an asynchronous CUDA error may surface here
            self._sight.observe("graph_call_failed", f"query of a timed replay: {error_name(error)}")
            self._fail(error)

    def _read(self, sample: Sample, now_ns: int) -> bool:
        """Take what a sample tells; True when it may be used again."""
        if not sample.measured:
            if not sample.end.query():
                self._late(sample, now_ns)
                return False
            self.replay.add(_elapsed_ns(sample.start, sample.end))
            sample.measured = True
            self._stuck.discard((sample.graph, sample.ended_ns))
        if sample.waits:
            return False
        if sample.has_next:
            if not sample.next_start.query():
                return False
            self.gap.add(_elapsed_ns(sample.end, sample.next_start))
        sample.clear()
        with self._lock:
            self._idle.append(sample)
        return True

    def _late(self, sample: Sample, now_ns: int) -> None:
        key = (sample.graph, sample.ended_ns)
        late_ns = now_ns - sample.ended_ns
        if late_ns < self._hang_ns or key in self._stuck:
            return
        self._stuck.add(key)
        slot = self._ledger.by_number.get(sample.graph)
        self._sight.observe("replay_stuck", stuck_text(sample.graph, slot, late_ns), "CUDA event after the replay")

    def _fail(self, error: BaseException) -> None:
        self.on = False
        self._sight.fault(SIGNAL, error)


def _note_stream(recorder: Recorder) -> None:
    """Remember the stream that this thread replays on, for the watch over replays that nobody timed."""
    torch = loaded("torch")
    if torch is not None:
        recorder.stream = torch.cuda.current_stream()


def stuck_text(number: int, slot: GraphSlot | None, late_ns: int) -> str:
    """What is said of a replay that does not end. Units: whole seconds."""
    owner = f" of {slot.owner}" if slot else ""
    return f"graph {number}{owner}: a replay, or work before it on its stream, has not ended after {late_ns // 10**9} s"


def _elapsed_ns(start: Any, end: Any) -> int:
    """Device time between two events that have ended."""
    return int(start.elapsed_time(end) * 1e6)
