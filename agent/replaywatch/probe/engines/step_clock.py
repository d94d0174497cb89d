"""`StepClock`: step times by dispatch mode, from the moments at which an engine reports its steps.

The time between two reports belongs to the earlier step, whose kernels the host waited for. It counts only where the
step before ran in the same mode and phase, since engines that schedule one step ahead blur the border between modes.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from replaywatch.probe.counts import Tally

# A pause that is this many usual steps long, and longer than 20 ms, is waiting for requests and no step.
IDLE_STEPS = 8
IDLE_NS = 20_000_000
MAX_KEYS = 48

Place = tuple[str | None, str | None]


class _Last:
    """The latest step of one component."""

    __slots__ = ("at_ns", "key", "steady")

    def __init__(self) -> None:
        self.at_ns = 0
        self.key: tuple[str, str | None] | None = None
        self.steady = False


class StepClock:
    """Histograms of step times by component, phase and mode. One thread per component is expected to report.

    `plans` is filled by whoever times the planning of steps on the host.
    """

    def __init__(self, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self._now_ns = now_ns
        self.reset()

    def reset(self) -> None:
        """Start from nothing."""
        self._last: dict[str | None, _Last] = {}
        self._usual_ns: dict[tuple[str | None, str | None, str], int] = {}
        self._tallies: dict[tuple[str | None, str | None, str], Tally] = {}
        self.plans = Tally()
        self.idle_ns = 0

    def step(self, mode: str, phase: str | None = None, component: str | None = None) -> None:
        """A step of this mode was just dispatched."""
        now_ns = self._now_ns()
        last = self._last.get(component)
        if last is None:
            last = self._last[component] = _Last()
        elif last.steady and last.key is not None:
            self._count(component, last.key, now_ns - last.at_ns)
        key = (mode, phase)
        last.steady = last.key == key
        last.key, last.at_ns = key, now_ns

    def take(self) -> dict[Place, dict[str, Any]]:
        """Fields of Timing by component and phase since the last call, in the wire form: step_by_mode, host_plan."""
        taken: dict[Place, dict[str, Any]] = {}
        for (component, phase, mode), tally in list(self._tallies.items()):
            histogram = tally.take()
            if histogram is not None:
                taken.setdefault((component, phase), {}).setdefault("step_by_mode", {})[mode] = histogram
        plans = self.plans.take()
        if plans is not None:
            taken.setdefault((None, None), {})["host_plan"] = plans
        return taken

    def _count(self, component: str | None, key: tuple[str, str | None], period_ns: int) -> None:
        mode, phase = key
        place = (component, phase, mode)
        tally = self._tallies.get(place)
        if tally is None:
            if len(self._tallies) >= MAX_KEYS:
                return
            tally = self._tallies[place] = Tally()
        usual = self._usual_ns.get(place, 0)
        if usual and period_ns > IDLE_NS and period_ns > IDLE_STEPS * usual:
            self.idle_ns += period_ns
            return
        self._usual_ns[place] = usual + ((period_ns - usual) >> 3) if usual else period_ns
        tally.add(period_ns)
