"""How long detection ticks took, in buckets."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

TICK_BOUNDS_SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class TickTimes:
    """Durations of detection ticks, counted into buckets."""

    def __init__(self) -> None:
        self._counts = [0] * (len(TICK_BOUNDS_SECONDS) + 1)
        self._sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count a tick."""
        self._counts[bisect_left(TICK_BOUNDS_SECONDS, seconds)] += 1
        self._sum_seconds += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper bound, and the sum in seconds."""
        total, rows = 0, []
        for bound, count in zip((*map(str, TICK_BOUNDS_SECONDS), "+Inf"), self._counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows, self._sum_seconds
