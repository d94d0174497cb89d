"""What became of messages, by destination, as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from replaywatch.contract.metrics import BY_NAME

OUTCOMES: Final = ("sent", "retried", "limited", "dead")
NOBODY: Final = "none"


class Notifications:
    """Counts of one process; the notifier writes them, a scrape reads them."""

    def __init__(self, destinations: tuple[str, ...]) -> None:
        self._destinations = destinations or (NOBODY,)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._waiting: Mapping[str, int] = {}

    def count(self, destination: str, outcome: str) -> None:
        """One more."""
        self._counts[destination, outcome] += 1

    def value(self, destination: str, outcome: str) -> int:
        """How many so far."""
        return self._counts[destination, outcome]

    def wait(self, waiting: Mapping[str, int]) -> None:
        """How many wait now, by destination."""
        self._waiting = waiting

    def families(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """The rows of the catalogue; every outcome of every destination exists from the start."""
        row = BY_NAME["replaywatch_collector_notifications_total"]
        counts = CounterMetricFamily(row.name.removesuffix("_total"), row.help, labels=row.labels)
        row = BY_NAME["replaywatch_collector_notifications_waiting"]
        waiting = GaugeMetricFamily(row.name, row.help, labels=row.labels)
        for destination in self._destinations:
            for outcome in OUTCOMES:
                counts.add_metric([destination, outcome], self._counts[destination, outcome])
            waiting.add_metric([destination], self._waiting.get(destination, 0))
        counts.add_metric([NOBODY, "silenced"], self._counts[NOBODY, "silenced"])
        yield from (counts, waiting)
