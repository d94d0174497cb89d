"""The collector's metrics for those who have them sent over OTLP."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING

from prometheus_client import Metric

from replaywatch.collector.loop import Loop
from replaywatch.collector.metrics import CollectorMetrics
from replaywatch.collector.options import CollectorOptions

if TYPE_CHECKING:
    from replaywatch.otlp.push import OtlpPush


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


class OtlpLoop(Loop):
    """Sends them every so many seconds; one that waits between two tries ends with it."""

    def __init__(self, push: OtlpPush, seconds: float) -> None:
        super().__init__("otlp", seconds, push.push)
        self._push = push

    def stop(self, timeout_seconds: float = 1.0) -> None:
        """End, without a last push."""
        self._stopping.set()
        self._push.close()
        super().stop(timeout_seconds)


def otlp_loops(options: CollectorOptions, exported: Exported) -> dict[str, Loop]:
    """What sends them, where that is asked for. Raises: ConfigurationError."""
    if options.otlp_endpoint is None:
        return {}
    from replaywatch.otlp.push import OtlpPush

    about = {"service.name": "replaywatch-collector", "service.version": _version()}
    push = OtlpPush(options.otlp_endpoint, exported.collect, about)
    return {"otlp": OtlpLoop(push, options.otlp_seconds)}


def _version() -> str:
    try:
        return metadata.version("replaywatch")
    except metadata.PackageNotFoundError:
        return ""
