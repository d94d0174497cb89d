"""The collector's metrics for those who have them sent over OTLP."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

from prometheus_client import Metric

from replaywatch.collector.loop import Loop
from replaywatch.collector.metrics import CollectorMetrics
from replaywatch.collector.options import CollectorOptions


class Exported:
    """Remembers the metrics once they are put together."""

    def __init__(self) -> None:
        self._metrics: CollectorMetrics | None = None

    def keep(self, metrics: CollectorMetrics) -> CollectorMetrics:
        """Remember and hand on."""
        self._metrics = metrics
        return metrics

    def collect(self) -> Iterable[Metric]:
        """The families of now."""
        return () if self._metrics is None else self._metrics.collect()


def otlp_loops(options: CollectorOptions, exported: Exported) -> dict[str, Loop]:
    """What sends them, where that is asked for. Raises: ConfigurationError."""
    if options.otlp_endpoint is None:
        return {}
    from replaywatch.otlp.push import OtlpPush

    about = {"service.name": "replaywatch-collector", "service.version": _version()}
    push = OtlpPush(options.otlp_endpoint, exported.collect, about)
    return {"otlp": Loop("otlp", options.otlp_seconds, push.push)}


def _version() -> str:
    try:
        return metadata.version("replaywatch")
    except metadata.PackageNotFoundError:
        return ""
