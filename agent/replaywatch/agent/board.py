"""`Board`: what /metrics shows of the workloads, added up since they were first seen."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from replaywatch.agent.ledger import Ledger
from replaywatch.agent.measures import (
    HISTOGRAMS,
    LARGEST_SIZE_EXPONENT,
    SIZES,
    counts,
    gauges,
    label_values,
    probe_costs,
)
from replaywatch.contract.histogram import BUCKETS_PER_DOUBLING, Histogram
from replaywatch.contract.identity import workload_id
from replaywatch.contract.metrics import EXEMPLIFIED
from replaywatch.contract.window import Window

# More than any closed label set has; only the names of failed calls can reach it.
MAX_LABEL_VALUES: Final = 32
# How long the counters of an ended process stay, so that a scrape every minute still sees its last steps.
AFTERGLOW_NS: Final = 120 * 10**9


@dataclass(slots=True)
class ClassicHistogram:
    """Counts between bounds of 2**n of some unit. Shape: `cells[i]` up to 2**(first + i), the last one beyond."""

    first: int
    cells: list[int]
    sum: int = 0

    @staticmethod
    def between(first: int, last: int) -> ClassicHistogram:
        """An empty one with bounds 2**first to 2**last."""
        return ClassicHistogram(first, [0] * (last - first + 2))

    def add(self, histogram: Histogram) -> None:
        """Add a log-bucket histogram; exact, because its buckets do not cross the bounds."""
        for index, count in histogram.buckets.items():
            self._put(-(-index // BUCKETS_PER_DOUBLING), count)
        self.cells[0] += histogram.zero
        self.sum += max(0, histogram.sum)

    def add_sizes(self, sizes: Mapping[int, int]) -> None:
        """Add whole numbers with how often each came; what is below one or never came is left out."""
        for size, count in sizes.items():
            if size >= 1 and count > 0:
                self._put((size - 1).bit_length(), count)
                self.sum += size * count

    def _put(self, exponent: int, count: int) -> None:
        self.cells[min(max(exponent - self.first, 0), len(self.cells) - 1)] += count


@dataclass(frozen=True, slots=True)
class Example:
    """The last window that added to a counter: whose it was, by the id in the collector's addresses, and how much."""

    workload: str
    amount: int
    end_ns: int


@dataclass(slots=True)
class Series:
    """What is shown of one workload. Shape: `counters` by metric and label value; `gauges` by process and phase."""

    seen_ns: int
    counters: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[tuple[str, str], Example] = field(default_factory=dict)
    histograms: dict[str, ClassicHistogram] = field(default_factory=dict)
    gauges: dict[Hashable, dict[str, float]] = field(default_factory=dict)
    ended: bool = False

    def add(self, window: Window, process: Hashable) -> None:
        """Add one window of a process."""
        who = workload_id(window.workload)
        for name, label, amount in counts(window):
            if amount > 0:
                key = self._count(name, label, amount)
                if name in EXEMPLIFIED and ((old := self.examples.get(key)) is None or old.end_ns < window.end_ns):
                    self.examples[key] = Example(who, amount, window.end_ns)
        for name, (pick, first, last) in HISTOGRAMS.items():
            histogram = pick(window.timing)
            if histogram is not None:
                self._histogram(name, first, last).add(histogram)
        for name, pick_sizes in SIZES.items():
            if sizes := pick_sizes(window.dispatch):
                self._histogram(name, 0, LARGEST_SIZE_EXPONENT).add_sizes(sizes)
        self.gauges[process] = {**self.gauges.get(process, {}), **gauges(window)}

    def _histogram(self, name: str, first: int, last: int) -> ClassicHistogram:
        if name not in self.histograms:
            self.histograms[name] = ClassicHistogram.between(first, last)
        return self.histograms[name]

    def _count(self, name: str, label: str, amount: int) -> tuple[str, str]:
        key = (name, label)
        if key not in self.counters and sum(n == name for n, _ in self.counters) >= MAX_LABEL_VALUES:
            key = (name, "other")
        self.counters[key] = self.counters.get(key, 0) + amount
        return key

    def gauge(self, name: str) -> float | None:
        """A gauge over the processes of one workload: ratios are averaged, amounts added."""
        values = [g[name] for g in self.gauges.values() if name in g]
        if not values:
            return None
        return sum(values) / len(values) if name.endswith("_ratio") else sum(values)


class Board:
    """The exposed workloads, at most `limit`; thread-safe."""

    def __init__(self, limit: int, stale_ns: int, ledger: Ledger) -> None:
        self._limit = limit
        self._stale_ns = stale_ns
        self._ledger = ledger
        self._lock = Lock()
        self._series: dict[tuple[str, ...], Series] = {}

    def add(self, windows: Iterable[Window], process: Hashable, now_ns: int) -> None:
        """Add windows of a process. `now_ns` is monotonic."""
        with self._lock:
            for window in windows:
                for name, amount in probe_costs(window):
                    self._ledger.add(name, amount=max(0.0, amount))
                series = self._of(label_values(window.workload), now_ns)
                if series is None:
                    self._ledger.add("replaywatch_agent_hidden_windows_total")
                    continue
                series.seen_ns, series.ended = now_ns, False
                series.add(window, process)

    def end(self, process: Hashable, now_ns: int) -> None:
        """A process ended: its gauges go at once, its counters after a last scrape."""
        with self._lock:
            for series in self._series.values():
                if series.gauges.pop(process, None) is not None and not series.gauges:
                    series.ended, series.seen_ns = True, now_ns

    def expire(self, now_ns: int) -> None:
        """Take off what ended or fell silent."""
        with self._lock:
            self._series = {
                labels: s
                for labels, s in self._series.items()
                if now_ns - s.seen_ns <= (min(AFTERGLOW_NS, self._stale_ns) if s.ended else self._stale_ns)
            }

    @contextmanager
    def read(self) -> Iterator[dict[tuple[str, ...], Series]]:
        """The series by label values, held still meanwhile."""
        with self._lock:
            yield self._series

    def _of(self, labels: tuple[str, ...], now_ns: int) -> Series | None:
        series = self._series.get(labels)
        if series is None and len(self._series) < self._limit:
            series = self._series[labels] = Series(now_ns)
        return series
