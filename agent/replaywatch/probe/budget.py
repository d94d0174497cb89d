"""`Budget`: what watching costs, measured, and how it slows itself down to stay within its share.

Cost is host time of hooks (calls times a cost calibrated on this host), processor time of the helper thread, pairs of
events (12 us each, M9) and the slow-down inside traced stretches (8 %, the upper end of M3).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

EVENT_PAIR_NS = 12_000
TRACED_RATIO = 0.08
MAX_STRETCH = 64
# Only a cost well below the budget, window after window, lets the probe speed up again.
CALM_RATIO = 0.25
CALM_WINDOWS = 6


class Budget:
    """Sums costs per window and decides a stretch factor, 1 when all is well."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._calm = 0
        self.stretch = 1
        self.throttled = 0
        self.hook_ns = 0.0

    def calibrate(self, measure: Callable[[], float]) -> None:
        """Learn what one hook call costs on this host. Units: nanoseconds."""
        self.hook_ns = max(0.0, measure())

    def spent_ns(self, hook_calls: int, helper_cpu_ns: int, timed: int, traced_ns: int) -> float:
        """What a window's watching cost the process."""
        return hook_calls * self.hook_ns + helper_cpu_ns + timed * EVENT_PAIR_NS + traced_ns * TRACED_RATIO

    def settle(self, spent_ns: float, window_ns: int) -> bool:
        """Judge a window: True when it was over the budget and the probe slows down."""
        share = spent_ns / max(1, window_ns)
        if share > self._ratio:
            self._calm = 0
            self.throttled += 1
            self.stretch = min(MAX_STRETCH, self.stretch * 2)
            return True
        self._calm = self._calm + 1 if share < CALM_RATIO * self._ratio else 0
        if self._calm >= CALM_WINDOWS and self.stretch > 1:
            self._calm = 0
            self.stretch //= 2
        return False

    def take_throttled(self) -> int:
        """How often the probe slowed down since the last call."""
        throttled, self.throttled = self.throttled, 0
        return throttled


def cost_of_call_ns(wrapped: Callable[[object], object], bare: Callable[[object], object], subject: object) -> float:
    """Nanoseconds that a wrapper adds to a call: the best of five short runs each."""

    def best(function: Callable[[object], object]) -> float:
        runs = []
        for _ in range(5):
            begin = perf_counter_ns()
            for _ in range(100):
                function(subject)
            runs.append((perf_counter_ns() - begin) / 100)
        return min(runs)

    return best(wrapped) - best(bare)
