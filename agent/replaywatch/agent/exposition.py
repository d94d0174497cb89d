"""/metrics: the catalogue's rows of the agent, as prometheus-client metric families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from os import sysconf
from pathlib import Path
from time import process_time
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from replaywatch.agent.board import Board, ClassicHistogram, Example, Series
from replaywatch.agent.ledger import Ledger
from replaywatch.contract.metrics import CATALOGUE, WORKLOAD_LABELS, Metric

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily
OwnGauges = Mapping[str, Callable[[], float | None]]
ROWS: Final = tuple(m for m in CATALOGUE if m.exposer in ("agent", "both"))
_NS: Final = 1e-9


class Exposition(Collector):
    """Makes the families at each scrape. `own` are the gauges of the agent itself, by name; None is not shown.

    `about` is what `replaywatch_agent_info` tells, by label.
    """

    def __init__(self, board: Board, ledger: Ledger, own: OwnGauges, about: Mapping[str, str] | None = None) -> None:
        self._board = board
        self._ledger = ledger
        self._own = own
        self._about = about or {}

    def collect(self) -> Iterator[Family]:
        """Every family of the catalogue, also those without samples."""
        with self._board.read() as series:
            families = [self._workload_family(m, series) for m in ROWS if m.scope == "workload"]
        yield from families
        for metric in ROWS:
            if metric.scope == "self":
                yield self._own_family(metric)

    def _workload_family(self, metric: Metric, series: Mapping[tuple[str, ...], Series]) -> Family:
        family = _family(metric, (*WORKLOAD_LABELS, *metric.labels))
        for labels, one in series.items():
            if isinstance(family, HistogramMetricFamily):
                if (histogram := one.histograms.get(metric.name)) is not None:
                    scale = _NS if metric.name.endswith("_seconds") else 1.0
                    family.add_metric(labels, classic_buckets(histogram, scale), sum_value=histogram.sum * scale)
            elif isinstance(family, CounterMetricFamily):
                for (name, label), count in one.counters.items():
                    if name == metric.name:
                        shown = (*labels, label) if metric.labels else labels
                        family.add_metric(shown, count, exemplar=_exemplar(one.examples.get((name, label))))
            elif isinstance(family, GaugeMetricFamily) and (value := one.gauge(metric.name)) is not None:
                family.add_metric(labels, value)
        return family

    def _own_family(self, metric: Metric) -> Family:
        family = _family(metric, metric.labels)
        assert not isinstance(family, HistogramMetricFamily)
        if isinstance(family, InfoMetricFamily):
            family.add_metric((), {label: self._about.get(label, "") for label in metric.labels})
            return family
        if (read := self._own.get(metric.name)) is not None:
            if (value := read()) is not None:
                family.add_metric((), value)
            return family
        rows = self._ledger.rows(metric.name) or ([] if metric.labels else [((), 0.0)])
        for labels, count in rows:
            family.add_metric(labels, count)
        return family


def _exemplar(example: Example | None) -> Exemplar | None:
    """As OpenMetrics has it; the older text format leaves it out."""
    if example is None:
        return None
    return Exemplar({"workload": example.workload}, example.amount, example.end_ns / 1e9)


def _family(metric: Metric, labels: tuple[str, ...]) -> Family:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name, metric.help, labels=labels)
    if metric.kind == "histogram":
        return HistogramMetricFamily(metric.name, metric.help, labels=labels)
    if metric.kind == "info":
        return InfoMetricFamily(metric.name.removesuffix("_info"), metric.help)
    return GaugeMetricFamily(metric.name, metric.help, labels=labels)


def classic_buckets(histogram: ClassicHistogram, scale: float = _NS) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound in the unit that `scale` makes, as the text format has them."""
    buckets, below = [], 0
    for position, count in enumerate(histogram.cells):
        below += count
        last = position == len(histogram.cells) - 1
        bound = "+Inf" if last else _bound(histogram.first + position, scale)
        buckets.append((bound, float(below)))
    return buckets


def _bound(exponent: int, scale: float) -> str:
    return repr(2**exponent / 1e9) if scale == _NS else repr(float(2**exponent) * scale)


def cpu_seconds() -> float:
    """Processor time that this process used, on all its threads."""
    return process_time()


def resident_bytes() -> float | None:
    """Resident memory of this process; None where /proc does not say."""
    try:
        fields = Path("/proc/self/statm").read_text().split()
        return float(int(fields[1]) * sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return None
