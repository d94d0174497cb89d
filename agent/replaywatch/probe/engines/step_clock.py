"""`StepClock`: step times by dispatch mode, from the moments at which an engine reports its steps.

The time between two reports belongs to the earlier step, whose kernels the host waited for. It counts only where the
step before ran in the same mode and phase, since engines that schedule one step ahead blur the border between modes.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from replaywatch.probe.counts import Tally
from replaywatch.probe.windows import add_histograms

# A pause that is this many usual steps long, and longer than 20 ms, is waiting for requests and no step.
IDLE_STEPS = 8
IDLE_NS = 20_000_000
MAX_PACES = 48

Place = tuple[str | None, str | None]


class Lane:
    """The latest step of one component."""

    __slots__ = ("at_ns", "pace", "steady")

    def __init__(self) -> None:
        self.at_ns = 0
        self.pace: Pace | None = None
        self.steady = False


class Pace:
    """Step times of one component, phase and mode."""

    __slots__ = ("between", "lane", "mode", "place", "tally", "usual_ns")

    def __init__(self, lane: Lane, place: Place, mode: str) -> None:
        self.lane, self.place, self.mode = lane, place, mode
        self.tally = Tally()
        self.between = Tally()
        self.usual_ns = 0


class StepClock:
    """Histograms of step times by component, phase and mode. One thread per component is expected to report.

    `plans` is filled by whoever times the planning of steps on the host; `now_ns` is the clock that all times are of.
    """

    def __init__(self, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self.now_ns = now_ns
        self.reset()

    def reset(self) -> None:
        """Start from nothing."""
        self._lanes: dict[str | None, Lane] = {}
        self._paces: dict[tuple[Place, str], Pace] = {}
        self.plans = Tally()
        self.idle_ns = 0

    def pace(self, mode: str, phase: str | None, component: str | None) -> Pace:
        """Where steps of this kind are timed; past the limit of kinds, all others are timed in one place."""
        place = (component, phase)
        found = self._paces.get((place, mode))
        if found is None:
            if len(self._paces) >= MAX_PACES:
                place = (None, "other")
            lane = self._lanes.setdefault(component, Lane())
            found = self._paces.setdefault((place, mode), Pace(lane, place, mode))
        return found

    def step(self, pace: Pace, asked_ns: int = 0, at_ns: int = 0) -> None:
        """A step is reported. `asked_ns`: when it was dispatched, where that is known and the report comes later.

        From the report of the step before to that moment the host was outside of any forward, at work or waiting.
        `at_ns`: the moment of the report, where it is not now.
        """
        now_ns, lane = at_ns or self.now_ns(), pace.lane
        last = lane.pace
        if lane.steady and last is not None:
            period_ns = now_ns - lane.at_ns
            if period_ns > IDLE_NS and last.usual_ns and period_ns > IDLE_STEPS * last.usual_ns:
                self.idle_ns += period_ns
            else:
                last.usual_ns += ((period_ns - last.usual_ns) >> 3) if last.usual_ns else period_ns
                last.tally.add(period_ns)
                if asked_ns > lane.at_ns:
                    last.between.add(asked_ns - lane.at_ns)
        lane.steady = last is pace
        lane.pace, lane.at_ns = pace, now_ns

    def take(self) -> dict[Place, dict[str, Any]]:
        """Fields of Timing by component and phase since the last call, in the wire form.

        Shape: `step_by_mode`, `between_forwards` of all modes together, `host_plan`.
        """
        taken: dict[Place, dict[str, Any]] = {}
        for pace in list(self._paces.values()):
            histogram, between = pace.tally.take(), pace.between.take()
            if histogram is not None and pace.place[1] != "other":
                found = taken.setdefault(pace.place, {})
                found.setdefault("step_by_mode", {})[pace.mode] = histogram
                if between is not None:
                    add_histograms(found, {"between_forwards": between})
        plans = self.plans.take()
        if plans is not None:
            taken.setdefault((None, None), {})["host_plan"] = plans
        return taken
