"""How the stages fare, for the collector's own metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from replaywatch.collector.clocks import Clocks
from replaywatch.collector.loop import Loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What is asked at each scrape. `others` are stages that are no loops."""

    waiting_batches: Callable[[], int]
    waiting_writes: Callable[[], int]
    last_tick_ns: Callable[[], int | None]
    clocks: Clocks
    loops: Mapping[str, Loop]
    others: Mapping[str, Callable[[], bool]]

    def gauges(self) -> Iterator[tuple[str, float]]:
        """Queues and clocks."""
        yield "replaywatch_collector_waiting_batches", self.waiting_batches()
        yield "replaywatch_collector_waiting_writes", self.waiting_writes()
        yield "replaywatch_collector_clock_skew_seconds", self.clocks.worst_skew_seconds

    def up(self) -> Iterator[tuple[str, bool]]:
        """Whether each stage works."""
        for name, is_up in self.others.items():
            yield name, is_up()
        for name, loop in self.loops.items():
            yield name, loop.is_alive and loop.trouble is None
