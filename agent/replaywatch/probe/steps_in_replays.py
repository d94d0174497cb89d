"""Finds steps in the order of replays: a step is one replay, or a group of graphs that always follow one another.

Piecewise engines replay dozens of graphs a step, in the order in which they were captured. Graph g continues the step
of f when f came right before g at least nine times in ten and g was captured after f; any other graph begins a step.
Bad at: two sizes that alternate strictly, step by step, look like one step of two graphs.
"""

from __future__ import annotations

from collections.abc import Mapping

from replaywatch.probe.counts import Tally
from replaywatch.probe.slots import MASK, RING, GraphSlot, Recorder

# Rows worked on per thread and drain: keeps the helper below about 0.5 ms of interpreter time a drain.
MAX_ROWS = 512
# The writer may lap the oldest rows while they are read.
MARGIN = 64
MIN_SEEN = 8
CONTINUES_RATIO = 0.9
# After so many replays what came before counts half.
FORGETS = 256
# A pause of more than a second that is also fifty usual steps long is waiting for work, not a step.
IDLE_NS = 1_000_000_000
IDLE_STEPS = 50


class StepFinder:
    """Turns the rows of recorders into histograms of step periods and of the host time of a graph launch."""

    def __init__(self) -> None:
        self.step_period = Tally()
        self.launch_call = Tally()
        self.idle_ns = 0
        self._usual_ns = 0

    def drain(self, recorder: Recorder, slots: Mapping[int, GraphSlot]) -> None:
        """Work on a recorder's new rows, the latest ones where there are too many. Shape: `slots` by number."""
        written = recorder.n
        first = max(recorder.read, written - MAX_ROWS, written - RING + MARGIN)
        if first > recorder.read:
            recorder.previous, recorder.step_start_ns = None, 0
        if written > first:
            self._rows(recorder, slots, range(first, written))
        if written > recorder.read:
            recorder.last_start_ns = recorder.rows[(written - 1) & MASK][0]
        recorder.read = written

    def _rows(self, recorder: Recorder, slots: Mapping[int, GraphSlot], numbers: range) -> None:
        """Most of what the helper thread takes in a busy process, so one loop that calls only what is not usual."""
        rows, previous, step_start_ns = recorder.rows, recorder.previous, recorder.step_start_ns
        periods: list[int] = []
        launches: list[int] = []
        for row in numbers:
            start_ns, end_ns, number = rows[row & MASK]
            if end_ns:  # not all are timed
                launches.append(end_ns - start_ns)
            slot = slots.get(number)
            if slot is None:
                previous, step_start_ns = None, 0
                continue
            if previous is not None:
                if slot.follows is previous:
                    slot.seen += 1
                    slot.follows_hits += 1
                    if slot.seen >= FORGETS:
                        _halve(slot)
                else:
                    _learn_another(slot, previous)
                if slot.follows is previous and previous is not slot and continues(slot):
                    previous = slot
                    continue
            previous = slot
            if step_start_ns:
                periods.append(start_ns - step_start_ns)
            step_start_ns = start_ns
        recorder.previous, recorder.step_start_ns = previous, step_start_ns
        self.launch_call.add_all(launches)
        self._periods(periods)

    def _periods(self, periods: list[int]) -> None:
        usual_ns, kept = self._usual_ns, []
        for period_ns in periods:
            if period_ns > IDLE_NS and period_ns > IDLE_STEPS * usual_ns > 0:
                self.idle_ns += period_ns
                continue
            usual_ns += (period_ns - usual_ns) >> 4 if usual_ns else period_ns
            kept.append(period_ns)
        self._usual_ns = usual_ns
        self.step_period.add_all(kept)


def continues(slot: GraphSlot) -> bool:
    """Whether a graph is known to continue the step of the graph before it."""
    follows = slot.follows
    return (
        follows is not None
        and slot.seen >= MIN_SEEN
        and follows.number < slot.number
        and slot.follows_hits >= CONTINUES_RATIO * slot.seen
    )


def _learn_another(slot: GraphSlot, previous: GraphSlot) -> None:
    """A graph ran after another one than it usually does."""
    slot.seen += 1
    if slot.follows is None or 2 * slot.follows_hits < slot.seen:
        slot.follows, slot.follows_hits = previous, 1
    if slot.seen >= FORGETS:
        _halve(slot)


def _halve(slot: GraphSlot) -> None:
    slot.seen >>= 1
    slot.follows_hits >>= 1
