"""`Tally`: the contract's log-bucket histogram, fillable without importing dataclasses into the serving process.

Importing `replaywatch.contract.histogram` costs 8 to 25 ms (dataclasses, inspect), a good part of the import budget, so
the layout is written here once more; a test holds both against each other bucket by bucket.
"""

from __future__ import annotations

from bisect import bisect_left
from math import frexp

BUCKETS_PER_DOUBLING = 8
_BOUNDS = tuple(2.0 ** (i / BUCKETS_PER_DOUBLING - 1.0) for i in range(BUCKETS_PER_DOUBLING))


class Tally:
    """A histogram of non-negative integers being filled; not thread-safe. Units: those of the field it fills."""

    __slots__ = ("buckets", "count", "sum", "zero")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over."""
        self.count = 0
        self.sum = 0
        self.zero = 0
        self.buckets: dict[int, int] = {}

    def add(self, value: int) -> None:
        """Count a value."""
        self.count += 1
        if value <= 0:
            self.zero += 1
            return
        self.sum += value
        mantissa, exponent = frexp(value)
        index = bisect_left(_BOUNDS, mantissa) + (exponent - 1) * BUCKETS_PER_DOUBLING
        self.buckets[index] = self.buckets.get(index, 0) + 1

    def take(self) -> dict[str, object] | None:
        """What was counted, in the wire form, and start over; None when nothing was."""
        if not self.count:
            return None
        short: dict[str, object] = {
            "n": self.count,
            "s": self.sum,
            "b": {str(index): count for index, count in self.buckets.items()},
        }
        if self.zero:
            short["z"] = self.zero
        self.clear()
        return short


def add_count(counts: dict[str, int], key: str, times: int = 1, limit: int = 64) -> None:
    """Count a key; past the limit of keys, count `other` instead, so that memory stays bounded."""
    if key not in counts and len(counts) >= limit:
        key = "other"
    counts[key] = counts.get(key, 0) + times
