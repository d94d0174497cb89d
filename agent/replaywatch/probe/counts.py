"""`Tally`: the contract's log-bucket histogram, fillable without importing dataclasses into the serving process.

Importing `replaywatch.contract.histogram` costs 8 to 25 ms (dataclasses, inspect), a good part of the import budget, so
the layout is written here once more; a test holds both against each other bucket by bucket.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import frexp

BUCKETS_PER_DOUBLING = 8
_BOUNDS = tuple(2.0 ** (i / BUCKETS_PER_DOUBLING - 1.0) for i in range(BUCKETS_PER_DOUBLING))


class Tally:
    """A histogram of non-negative integers being filled. Units: those of the field it fills.

    One thread may add while another takes: what is taken is whole, and at most the value that is being added is lost.
    """

    __slots__ = ("buckets", "sum", "zero")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over."""
        self.sum = 0
        self.zero = 0
        self.buckets: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Values so far."""
        return sum(dict(self.buckets).values()) + self.zero

    def add(self, value: int) -> None:
        """Count a value."""
        if value <= 0:
            self.zero += 1
            return
        mantissa, exponent = frexp(value)
        index = bisect_left(_BOUNDS, mantissa) + (exponent - 1) * BUCKETS_PER_DOUBLING
        buckets = self.buckets  # read once: `take` may put another one in its place
        buckets[index] = buckets.get(index, 0) + 1
        self.sum += value

    def add_all(self, values: Iterable[int]) -> None:
        """Count values, at half of what it takes one by one; on the thread that takes."""
        buckets, total, zero = self.buckets, 0, 0
        for value in values:
            if value <= 0:
                zero += 1
                continue
            mantissa, exponent = frexp(value)
            index = bisect_left(_BOUNDS, mantissa) + (exponent - 1) * BUCKETS_PER_DOUBLING
            buckets[index] = buckets.get(index, 0) + 1
            total += value
        self.sum += total
        self.zero += zero

    def take(self) -> dict[str, object] | None:
        """What was counted, in the wire form, and start over; None when nothing was."""
        if not self.buckets and not self.zero:
            return None
        buckets, total, zero = self.buckets, self.sum, self.zero
        self.buckets, self.sum, self.zero = {}, 0, 0
        counted = dict(buckets)  # a copy is one step; whoever adds right now may still hold the original
        short: dict[str, object] = {
            "n": sum(counted.values()) + zero,
            "s": total,
            "b": {str(index): count for index, count in counted.items()},
        }
        if zero:
            short["z"] = zero
        return short


def add_count(counts: dict[str, int], key: str, times: int = 1, limit: int = 64) -> None:
    """Count a key; past the limit of keys, count `other` instead, so that memory stays bounded."""
    if key not in counts and len(counts) >= limit:
        key = "other"
    counts[key] = counts.get(key, 0) + times


def is_integral(value: object) -> bool:
    """Whether a value is an integer, of Python or of another library such as numpy."""
    if type(value) is int:
        return True
    from numbers import Integral

    return isinstance(value, Integral)
