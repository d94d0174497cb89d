"""`/metrics`: the collector's rows of the metric catalogue, from the last fleet view and the stages' own counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from replaywatch.collector.fleet import FleetView, WorkloadView
from replaywatch.collector.notified import Notifications
from replaywatch.collector.receive import Received
from replaywatch.collector.stages import Stages
from replaywatch.collector.tick_times import TickTimes
from replaywatch.contract.metrics import BY_NAME, WORKLOAD_LABELS

MetricFamily = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily
BATCH_OUTCOMES: Final = ("accepted", "duplicate", "refused", "too_large", "unauthorized", "limited", "busy", "failed")
CAPTURE_UNITS: Final = ("sequences", "tokens")
VERDICTS: Final = ("healthy", "finding", "warming_up", "blind")


class CollectorMetrics(PrometheusCollector):
    """Makes metric families out of what the stages publish; nothing is kept between two scrapes."""

    def __init__(
        self,
        *,
        view: Callable[[], FleetView],
        open_incidents: Callable[[], Mapping[str, int]],
        received: Received,
        notifications: Notifications,
        ticks: TickTimes,
        stages: Stages,
    ) -> None:
        self._view = view
        self._open_incidents = open_incidents
        self._received = received
        self._notifications = notifications
        self._ticks = ticks
        self._stages = stages

    def collect(self) -> Iterator[MetricFamily]:
        """The families, each a row of the catalogue."""
        live = [v for v in self._view().workloads if not v.is_stale]
        yield from workload_families(live)
        yield _counts("replaywatch_collector_batches_total", BATCH_OUTCOMES, self._received.batches)
        windows = CounterMetricFamily("replaywatch_collector_windows", _help("replaywatch_collector_windows_total"))
        windows.add_metric([], self._received.windows)
        yield windows
        buckets, total_seconds = self._ticks.buckets()
        name = "replaywatch_collector_detection_seconds"
        yield HistogramMetricFamily(name, _help(name), buckets=buckets, sum_value=total_seconds)
        name = "replaywatch_collector_last_tick_timestamp_seconds"
        yield GaugeMetricFamily(name, _help(name), value=(self._stages.last_tick_ns() or 0) / 1e9)
        about = InfoMetricFamily("replaywatch_collector", _help("replaywatch_collector_info"))
        about.add_metric([], {"version": _version()})
        yield about
        name = "replaywatch_collector_workloads"
        yield GaugeMetricFamily(name, _help(name), value=len(live))
        name = "replaywatch_collector_incidents"
        incidents = GaugeMetricFamily(name, _help(name), labels=BY_NAME[name].labels)
        severities = self._open_incidents()
        for severity in ("info", "warn", "page"):
            incidents.add_metric([severity], severities.get(severity, 0))
        yield incidents
        yield from self._notifications.families()
        for name, value in self._stages.gauges():
            yield GaugeMetricFamily(name, _help(name), value=value)
        name = "replaywatch_collector_stage_up"
        stages = GaugeMetricFamily(name, _help(name), labels=BY_NAME[name].labels)
        for stage, is_up in self._stages.up():
            stages.add_metric([stage], float(is_up))
        yield stages


def registry_of(metrics: CollectorMetrics) -> CollectorRegistry:
    """A registry with these metrics and nothing else."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return registry


def workload_families(views: Iterable[WorkloadView]) -> Iterator[MetricFamily]:
    """The families about workloads. Workloads that share all labels show up once, as the one that needs people most."""
    ratios = _workload_gauge("cudagraph_recoverable_ratio")
    findings = _workload_gauge("cudagraph_finding")
    verdicts = _workload_gauge("cudagraph_verdict")
    ceilings = _workload_gauge("cudagraph_capture_ceiling")
    limits = _workload_gauge("cudagraph_batch_size_limit")
    info = InfoMetricFamily("cudagraph_workload", _help("cudagraph_workload_info"))
    seen: set[tuple[str, ...]] = set()
    for view in views:
        labels = workload_labels(view)
        if labels in seen:
            continue
        seen.add(labels)
        for verdict in VERDICTS:
            verdicts.add_metric([*labels, verdict], float(view.judgement.verdict == verdict))
        estimate = view.estimate
        if estimate is not None and estimate.is_recoverable:
            for bound, value in (("low", estimate.low), ("estimate", estimate.ratio), ("high", estimate.high)):
                ratios.add_metric([*labels, bound], value)
        open_findings = {(f.detector, f.severity if f.is_fault else "info") for f in view.judgement.findings}
        for detector, severity in sorted(open_findings):
            findings.add_metric([*labels, detector, severity], 1.0)
        config = view.config
        if config is not None and config.ceiling is not None:
            ceilings.add_metric([*labels, _unit(config.capture_unit)], config.ceiling)
        if config is not None and config.max_batch_size is not None:
            limits.add_metric(labels, config.max_batch_size)
        info.add_metric([], {**dict(zip(WORKLOAD_LABELS, labels, strict=True)), **_info(view)})
    yield from (ratios, findings, verdicts, info, ceilings, limits)


def workload_labels(view: WorkloadView) -> tuple[str, ...]:
    """Values of WORKLOAD_LABELS, empty where unknown."""
    w = view.workload
    values = (
        w.namespace,
        w.pod,
        w.container,
        w.engine,
        w.model_name,
        w.component,
        w.rank,
        w.gpu_index,
        w.gpu_uuid,
        w.phase,
    )
    return tuple("" if v is None else str(v) for v in values)


def _info(view: WorkloadView) -> dict[str, str]:
    config, fingerprint = view.config, view.fingerprint
    return {
        "requested_mode": (config.requested_mode if config else None) or "",
        "resolved_mode": (config.resolved_mode if config else None) or "",
        "gpu_model": (fingerprint.gpu_model if fingerprint else None) or "",
        "driver": (fingerprint.driver if fingerprint else None) or "",
        "engine_version": (fingerprint.engine_version if fingerprint else None) or "",
        "node": view.workload.node or "",
        "config": config.id if config else "",
    }


def _unit(unit: str | None) -> str:
    """A label of a closed set."""
    return unit if unit in CAPTURE_UNITS else "other"


def _version() -> str:
    try:
        return metadata.version("replaywatch")
    except metadata.PackageNotFoundError:
        return ""


def _workload_gauge(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, _help(name), labels=(*WORKLOAD_LABELS, *BY_NAME[name].labels))


def _counts(name: str, outcomes: tuple[str, ...], counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name.removesuffix("_total"), _help(name), labels=BY_NAME[name].labels)
    for outcome in outcomes:
        family.add_metric([outcome], counts.get(outcome, 0))
    return family


def _help(name: str) -> str:
    return BY_NAME[name].help
