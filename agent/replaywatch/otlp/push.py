"""Pushing over OTLP: HTTP with protobuf, every so many seconds, never blocking who is measured."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import Metric as Family

from replaywatch.contract.errors import ConfigurationError

LOG = logging.getLogger("replaywatch.otlp")
PATH: Final = "/v1/metrics"
TIMEOUT_SECONDS: Final = 10.0


class OtlpPush:
    """Sends families to one OpenTelemetry collector. `families` are read anew at each push.

    `endpoint` is its base address, such as http://127.0.0.1:4318. Raises: ConfigurationError without the extra.
    """

    def __init__(
        self,
        endpoint: str,
        families: Callable[[], Iterable[Family]],
        about: Mapping[str, str],
        *,
        headers: Mapping[str, str] | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ImportError:
            raise ConfigurationError("OTLP needs its packages; pip install 'replaywatch[otlp]'") from None
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigurationError("the OTLP endpoint must be http:// or https://, such as http://127.0.0.1:4318")
        url = endpoint.rstrip("/")
        url = url if url.endswith(PATH) else url + PATH
        self._exporter = OTLPMetricExporter(endpoint=url, headers=dict(headers or {}), timeout=TIMEOUT_SECONDS)
        self._families = families
        self._about = about
        self._clock = clock
        self._start_ns = clock()
        self._is_failing = False
        self.pushed = 0
        self.failed = 0

    def push(self) -> bool:
        """Send once; whether it was taken. A failure is told once, not at every push."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from replaywatch.otlp.conversion import metrics_data

        data = metrics_data(self._families(), self._about, self._start_ns, self._clock())
        try:
            is_taken = self._exporter.export(data) is MetricExportResult.SUCCESS
        except (OSError, ValueError):
            # What the library's HTTP client lets through when nobody is there.
            is_taken = False
        if is_taken:
            self.pushed += 1
        else:
            self.failed += 1
            if not self._is_failing:
                LOG.warning("metrics were not taken over OTLP; trying on")
        self._is_failing = not is_taken
        return is_taken

    def close(self) -> None:
        """Give the connection back; a push that waits between two tries ends."""
        self._exporter.shutdown()


class OtlpThread:
    """Pushes every so many seconds until stopped."""

    def __init__(self, push: OtlpPush, seconds: float) -> None:
        self._push = push
        self._seconds = seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replaywatch-otlp", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """End, without a last push."""
        self._stopping.set()
        self._push.close()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._push.push()
