"""Prometheus' metric families as OpenTelemetry's metrics data: the same names, labels and values.

Counters become cumulative monotonic sums, classic histograms explicit-bucket ones, gauges and info series gauges.
Shape: a histogram's cumulative counts by upper bound become counts of each bucket, one more than there are bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf, nan
from typing import Any, Final, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family

SCOPE: Final = InstrumentationScope("replaywatch")
_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
_TOTAL: Final = "_total"


@dataclass(slots=True)
class _Parts:
    """What belongs to one label set of a histogram."""

    buckets: list[tuple[float, float]] = field(default_factory=list)
    sum: float = nan


def metrics_data(families: Iterable[Family], about: Mapping[str, str], start_ns: int, now_ns: int) -> MetricsData:
    """All families as one message. `about` are attributes of the resource; times are Unix nanoseconds."""
    metrics = [metric for family in families if (metric := _metric(family, start_ns, now_ns)) is not None]
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics, schema_url="")
    resource = ResourceMetrics(resource=Resource(dict(about)), scope_metrics=[scope], schema_url="")
    return MetricsData(resource_metrics=[resource])


def _metric(family: Family, start_ns: int, now_ns: int) -> Metric | None:
    if not family.samples:
        return None
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(_histogram_points(family, start_ns, now_ns), AggregationTemporality.CUMULATIVE)
    elif family.type == "counter":
        points = _points(family, start_ns, now_ns)
        data = Sum(points, aggregation_temporality=AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_points(family, None, now_ns))
    name = f"{family.name}_info" if family.type == "info" else family.name
    return Metric(name=name, description=family.documentation, unit=_unit(family), data=data)


def _points(family: Family, start_ns: int | None, now_ns: int) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(
            attributes=_attributes(sample.labels),
            start_time_unix_nano=start_ns if start_ns is not None else 0,
            time_unix_nano=now_ns,
            value=float(sample.value),
        )
        for sample in family.samples
        if family.type != "counter" or sample.name.endswith(_TOTAL)
    ]


def _histogram_points(family: Family, start_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    parts: dict[tuple[tuple[str, str], ...], _Parts] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        part = parts.setdefault(tuple(sorted(labels.items())), _Parts())
        if sample.name.endswith("_bucket"):
            part.buckets.append((float(sample.labels["le"]), float(sample.value)))
        elif sample.name.endswith("_sum"):
            part.sum = float(sample.value)
    return [_histogram_point(dict(key), part, start_ns, now_ns) for key, part in parts.items()]


def _histogram_point(labels: Mapping[str, str], part: _Parts, start_ns: int, now_ns: int) -> HistogramDataPoint:
    ordered = sorted(part.buckets)
    cumulative = [int(count) for _, count in ordered]
    counts = [after - before for before, after in zip([0, *cumulative], cumulative, strict=False)]
    return HistogramDataPoint(
        attributes=_attributes(labels),
        start_time_unix_nano=start_ns,
        time_unix_nano=now_ns,
        count=cumulative[-1] if cumulative else 0,
        sum=part.sum,
        bucket_counts=counts,
        explicit_bounds=[bound for bound, _ in ordered if not isinf(bound)],
        # The extremes are not kept. The type has no word for that; None is left out of the message.
        min=cast(float, None),
        max=cast(float, None),
    )


def _attributes(labels: Mapping[str, str]) -> dict[str, Any]:
    """Labels without empty ones, which to Prometheus are absent too."""
    return {name: value for name, value in labels.items() if value != ""}


def _unit(family: Family) -> str:
    return next((unit for ending, unit in _UNITS.items() if family.name.endswith(f"_{ending}")), "")
