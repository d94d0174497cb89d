"""A detector for any series of numbers, when nothing else is known of it: it tells when records are broken.

Six views of the series are kept: the value, its mean over 24 and over 100 records, its distance from the same time on
other days and the mean of that, and how much it strays. For each, a value beyond all earlier ones counts by how far it
is beyond, in units of the usual range and of the tail. What was told once is told again within 100 records only if it
is worse. The `sudden` detector knows more (load, direction, what matters) and does not use this one.

Source: scored on Numenta's benchmark, on which the weights were chosen (docs/score.md).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import log, sqrt
from statistics import median
from typing import Final

HISTORY: Final = 10_000
LEARNING: Final = 50
QUIET_RECORDS: Final = 100
DAY_SECONDS: Final = 86_400.0
DAYS: Final = 7
TAIL_RATIO: Final = 0.02
# Distances from other days count in units of at least this share of the values' own range.
LEAST_DAILY: Final = 0.5
# How much a broken record of each view counts.
WEIGHTS: Final = {"value": 1.0, "mean100": 1.0, "mean24": 0.3, "day": 0.3, "day_mean": 0.3, "strays": 0.3}


class Records:
    """The last values of one view in order of size, and how far a new one is beyond them."""

    def __init__(self) -> None:
        self._sorted: list[float] = []
        self._recent: deque[float] = deque()

    def add(self, value: float, least_range: float = 0.0) -> float:
        """Count a value; how far it is beyond all before it, 0 within them and while learning."""
        beyond = self._beyond(value, least_range) if len(self._sorted) >= LEARNING else 0.0
        insort(self._sorted, value)
        self._recent.append(value)
        if len(self._recent) > HISTORY:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        return beyond

    @property
    def usual_range(self) -> float:
        """Width of the middle nine tenths; 0 while learning."""
        n = len(self._sorted)
        return self._sorted[min(n - 1, int(0.95 * n))] - self._sorted[int(0.05 * n)] if n >= LEARNING else 0.0

    def _beyond(self, value: float, least_range: float) -> float:
        seen = self._sorted
        n = len(seen)
        tail_n = max(3, int(TAIL_RATIO * n))
        if value > seen[-1]:
            excess, tail = value - seen[-1], sum(seen[-tail_n:]) / tail_n - seen[-tail_n]
        elif value < seen[0]:
            excess, tail = seen[0] - value, seen[tail_n - 1] - sum(seen[:tail_n]) / tail_n
        else:
            return 0.0
        usual = max(self.usual_range, least_range)
        return excess / (usual + tail + 1e-9 + 1e-3 * abs(seen[n // 2]))


class Mean:
    """Mean over the last `length` values."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._values: deque[float] = deque()
        self._sum = 0.0

    def add(self, value: float) -> float:
        """Count a value; the mean with it."""
        self._values.append(value)
        self._sum += value
        if len(self._values) > self._length:
            self._sum -= self._values.popleft()
        return self._sum / len(self._values)


class Daily:
    """Distance of a value from the median of the same time on the days before; None until days are known."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._gaps: list[float] = []
        self._last_s: float | None = None
        self._records_a_day = 0

    def add(self, at_s: float, value: float) -> float | None:
        """Count a value at a time in seconds."""
        if self._last_s is not None and len(self._gaps) < LEARNING:
            self._gaps.append(at_s - self._last_s)
            middle = median(self._gaps)
            self._records_a_day = round(DAY_SECONDS / middle) if middle > 0 else 0
        self._last_s = at_s
        self._values.append(value)
        day, i = self._records_a_day, len(self._values) - 1
        if day < 10:
            return None
        before: list[float] = []
        for k in range(1, DAYS + 1):
            j = i - k * day
            if j < 0:
                break
            before.extend(self._values[max(0, j - 1) : j + 2])
        if len(self._values) > 2 * (DAYS + 1) * day:
            del self._values[: -(DAYS + 1) * day]
        return value - median(before) if len(before) >= 6 else None


class SeriesDetector:
    """Scores a series record by record, from its past alone; bounded memory.

    Bad at: slow drift within the range seen; a series that leaves its range often (trends); anomalies inside the range,
    such as a missing peak.
    """

    def __init__(self) -> None:
        self._records = {name: Records() for name in WEIGHTS}
        self._mean24, self._mean100, self._day_mean = Mean(24), Mean(100), Mean(100)
        self._square, self._middle, self._size = Mean(48), Mean(48), Mean(200)
        self._daily = Daily()
        self._told, self._since = 0.0, QUIET_RECORDS

    def add(self, at_s: float, value: float) -> float:
        """The score of one more record, 0 where nothing is odd. `at_s`: time in seconds, from any start."""
        away = self._daily.add(at_s, value)
        middle, square = self._middle.add(value), self._square.add(value * value)
        size = self._size.add(abs(value))
        least = LEAST_DAILY * self._records["value"].usual_range
        views = {
            "value": value,
            "mean24": self._mean24.add(value),
            "mean100": self._mean100.add(value),
            "strays": log(sqrt(max(0.0, square - middle * middle)) + 1e-3 * size + 1e-9),
        }
        score = sum(WEIGHTS[name] * self._records[name].add(v) for name, v in views.items())
        if away is not None:
            days = {"day": away, "day_mean": self._day_mean.add(away)}
            score += sum(WEIGHTS[name] * self._records[name].add(v, least) for name, v in days.items())
        return self._fresh(score)

    def _fresh(self, score: float) -> float:
        """The score where it is news, else 0."""
        self._since += 1
        if self._since > QUIET_RECORDS:
            self._told = 0.0
        if score <= self._told:
            return 0.0
        self._told, self._since = score, 0
        return score
