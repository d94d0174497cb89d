"""Prometheus histograms as ours."""

from __future__ import annotations

import math
from collections.abc import Iterable

from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.sources.engine_metrics.exposition import Sample

# More counts than any process makes; guards against pages that say 1e300.
_MAX_COUNT = 1 << 53


def to_histogram(samples: Iterable[Sample], name: str, unit_ns: float) -> tuple[Histogram, float] | None:
    """A histogram family in nanoseconds, and by what factor a value can be wrong; None when nothing was counted.

    A bucket's counts are placed at the geometric middle of its bounds, those of the first bucket at half its bound,
    those above the last bound at that bound; the sum is exact.

    Error: a value can be wrong by the square root of its bucket's bounds' ratio, by 2 in the first bucket, and without
    limit above the last bound. The returned factor is the largest over the buckets that hold counts.
    """
    bounds: dict[float, float] = {}
    total = 0.0
    for sample in samples:
        if sample.name == f"{name}_bucket":
            edge = _edge(sample.by_label.get("le"))
            if edge is not None and math.isfinite(sample.value):
                bounds[edge] = bounds.get(edge, 0.0) + sample.value
        elif sample.name == f"{name}_sum" and math.isfinite(sample.value):
            total += sample.value
    builder = HistogramBuilder()
    lower, below, error = 0.0, 0.0, 1.0
    for edge in sorted(bounds):
        count = round(max(0.0, min(bounds[edge] - below, _MAX_COUNT)))
        if count:
            value, wrong = _middle(lower, edge)
            builder.add(max(1, round(min(value * unit_ns, 1e18))), count)
            error = max(error, wrong)
        lower, below = edge, max(below, bounds[edge])
    if not builder.count:
        return None
    built = builder.build()
    exact = round(min(max(total, 0.0) * unit_ns, 1e27)) if total > 0 else built.sum
    return Histogram(built.count, exact, built.zero, built.buckets), error


def _edge(text: str | None) -> float | None:
    try:
        edge = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(edge) else edge


def _middle(lower: float, upper: float) -> tuple[float, float]:
    """Where to place a bucket's counts, and the factor by which that can be wrong."""
    if math.isinf(upper):
        return lower, math.inf
    if lower <= 0:
        return max(upper, 0.0) / 2, 2.0
    return math.sqrt(lower * upper), math.sqrt(upper / lower)


def rescaled(histogram: Histogram, count: int) -> Histogram:
    """The same shape and mean with another number of counts, rounded by largest remainder."""
    if count <= 0 or histogram.count == 0:
        return Histogram()
    factor = count / histogram.count
    exact = {index: n * factor for index, n in histogram.buckets.items()}
    buckets = {index: int(value) for index, value in exact.items()}
    missing = count - sum(buckets.values())
    for index in sorted(exact, key=lambda i: exact[i] - buckets[i], reverse=True)[: max(0, missing)]:
        buckets[index] += 1
    return Histogram(count, round(histogram.sum * factor), 0, {i: n for i, n in buckets.items() if n})
