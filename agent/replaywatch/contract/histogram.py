"""One mergeable log-bucket histogram, laid out as Prometheus native histograms of schema 3.

Bucket ``i`` holds values in ``(2**((i-1)/8), 2**(i/8)]``; eight buckets a doubling, at most 9.05 % wide. Zero and
negative values are counted apart. The same layout is used by the native tracer, the wire form and the store, so that
histograms from anywhere merge by adding counts.

Source: Prometheus native histogram specification, standard exponential schemas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from math import frexp

from replaywatch.contract.record import record

SCHEMA = 3
BUCKETS_PER_DOUBLING = 1 << SCHEMA
# Upper bounds of the eight buckets inside one doubling, for a mantissa in [0.5, 1).
_BOUNDS = tuple(2.0 ** (i / BUCKETS_PER_DOUBLING - 1.0) for i in range(BUCKETS_PER_DOUBLING))


def bucket_index(value: float) -> int:
    """Index of the bucket that holds a positive value; its upper bound is ``2**(index/8)``."""
    mantissa, exponent = frexp(value)
    return bisect_left(_BOUNDS, mantissa) + (exponent - 1) * BUCKETS_PER_DOUBLING


def bucket_upper(index: int) -> float:
    """Inclusive upper bound of a bucket, in the unit of the histogram."""
    return float(2.0 ** (index / BUCKETS_PER_DOUBLING))


@record(frozen=True, slots=True)
class Histogram:
    """Counts of non-negative integers, nanoseconds unless its field says otherwise.

    Shape: ``buckets`` is sparse, index to count; ``zero`` counts values of 0 and below.
    """

    count: int = 0
    sum: int = 0
    zero: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)

    @staticmethod
    def of(values: Iterable[int]) -> Histogram:
        """The histogram of some values."""
        builder = HistogramBuilder()
        for value in values:
            builder.add(value)
        return builder.build()

    def merge(self, other: Histogram) -> Histogram:
        """Both histograms together; exact, commutative and associative."""
        if not other.count:
            return self
        if not self.count:
            return other
        buckets = dict(self.buckets)
        for index, count in other.buckets.items():
            buckets[index] = buckets.get(index, 0) + count
        return Histogram(self.count + other.count, self.sum + other.sum, self.zero + other.zero, buckets)

    @staticmethod
    def merge_all(histograms: Sequence[Histogram]) -> Histogram:
        """All of at least one together, in one pass."""
        first, *others = histograms
        count, total, zero, buckets = first.count, first.sum, first.zero, dict(first.buckets)
        for other in others:
            count, total, zero = count + other.count, total + other.sum, zero + other.zero
            for index, n in other.buckets.items():
                buckets[index] = buckets.get(index, 0) + n
        return Histogram(count, total, zero, buckets)

    @property
    def mean(self) -> float | None:
        """Arithmetic mean, exact; None when empty."""
        return self.sum / self.count if self.count else None

    def quantile(self, q: float) -> float | None:
        """Value at quantile q in 0..1, interpolated inside its bucket on the log scale; None when empty.

        Error: at most one bucket width (9.05 %).
        """
        if not self.count:
            return None
        rank = q * self.count
        if rank <= self.zero and self.zero:
            return 0.0
        seen = float(self.zero)
        index = 0
        for index in sorted(self.buckets):
            here = self.buckets[index]
            if seen + here >= rank:
                inside = (rank - seen) / here
                return float(2.0 ** ((index - 1 + inside) / BUCKETS_PER_DOUBLING))
            seen += here
        return bucket_upper(index)

    def share_above(self, value: float) -> float | None:
        """Share of the counts in buckets that lie wholly above a value; None when empty."""
        if not self.count:
            return None
        edge = bucket_index(value) if value > 0 else None
        above = sum(c for i, c in self.buckets.items() if edge is None or i > edge)
        return above / self.count


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram | None:
    """All in one; None where there are none."""
    total: Histogram | None = None
    for histogram in histograms:
        total = histogram if total is None else total.merge(histogram)
    return total


class HistogramBuilder:
    """A histogram being filled; not thread-safe."""

    __slots__ = ("buckets", "count", "sum", "zero")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.zero = 0
        self.buckets: dict[int, int] = {}

    def add(self, value: int, times: int = 1) -> None:
        """Count a value."""
        self.count += times
        if value <= 0:
            self.zero += times
            return
        self.sum += value * times
        index = bucket_index(value)
        self.buckets[index] = self.buckets.get(index, 0) + times

    def build(self) -> Histogram:
        """What was counted so far."""
        return Histogram(self.count, self.sum, self.zero, dict(self.buckets))
