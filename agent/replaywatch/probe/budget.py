"""`Budget`: what watching costs, measured, and how it slows itself down to stay within its share.

Cost is host time of hooks (calls times what one takes on this host, replays by practice and steps measured in place),
processor time of the helper thread, pairs of events (12 us each, M9) and the slow-down inside traced stretches (8 %,
the upper end of M3).
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
# Replays are watched in full again once that would take less than this share of the budget.
FULL_RATIO = 0.5
# What is left to sampling and to the helper thread, whatever an engine's steps take.
REST_RATIO = 0.4


class Budget:
    """Sums costs per window and decides how much is watched.

    `stretch` is 1 when all is well: sampling and the helper thread slow down by it. Where that is not enough,
    `counting_only` says that replays should be counted and nothing else. Units: nanoseconds a call.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._calm = 0
        self.stretch = 1
        self.counting_only = False
        self.throttled = 0
        self.replay_ns = 0.0
        self.count_ns = 0.0
        self.step_ns = 0.0

    def hooks_ns(self, replays: int, steps: int) -> float:
        """Host time that a window's hook calls took."""
        return replays * (self.count_ns if self.counting_only else self.replay_ns) + steps * self.step_ns

    def spent_ns(self, hooks_ns: float, helper_cpu_ns: int, timed: int, traced_ns: int) -> float:
        """What a window's watching cost the process."""
        return hooks_ns + helper_cpu_ns + timed * EVENT_PAIR_NS + traced_ns * TRACED_RATIO

    def settle(self, spent_ns: float, window_ns: int, replays: int, fixed_ns: float = 0.0) -> bool:
        """Judge a window: True when it was over the budget and the probe slows down.

        `fixed_ns` of what was spent nothing here can save: an engine's steps are told each. Where they alone take the
        budget, the rest still has a part of it, for slowing that down would save little and leave the process unseen.
        """
        budget_ns = self._ratio * max(1, window_ns)
        costly = replays * self.replay_ns > FULL_RATIO * budget_ns
        spent_ns -= fixed_ns
        budget_ns = max(budget_ns - fixed_ns, REST_RATIO * budget_ns)
        over = spent_ns > budget_ns
        if over:
            self.throttled += 1
            self.counting_only |= costly and self.stretch == MAX_STRETCH
            self.stretch = min(MAX_STRETCH, self.stretch * 2)
        calm = not costly if self.counting_only else spent_ns < CALM_RATIO * budget_ns
        self._calm = self._calm + 1 if calm else 0
        if self._calm >= CALM_WINDOWS:
            self._calm = 0
            self._speed_up()
        return over

    def _speed_up(self) -> None:
        if self.counting_only:
            self.counting_only = False
        elif self.stretch > 1:
            self.stretch //= 2

    def take_throttled(self) -> int:
        """How often the probe slowed down since the last call."""
        throttled, self.throttled = self.throttled, 0
        return throttled


def cost_of_call_ns(wrapped: Callable[[object], object], bare: Callable[[object], object], subject: object) -> float:
    """Nanoseconds that a wrapper adds to a call, at least 0: the best of five short runs each."""

    def best(function: Callable[[object], object]) -> float:
        runs = []
        for _ in range(5):
            begin = perf_counter_ns()
            for _ in range(100):
                function(subject)
            runs.append((perf_counter_ns() - begin) / 100)
        return min(runs)

    return max(0.0, best(wrapped) - best(bare))
