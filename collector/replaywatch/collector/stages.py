"""How the stages fare, for the collector's own metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from replaywatch.collector.clocks import Clocks
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.loop import Loop
from replaywatch.collector.writer import Writer


@dataclass(frozen=True, slots=True)
class Stages:
    """What is asked at each scrape."""

    inbox: Inbox
    writer: Writer
    clocks: Clocks
    loops: Mapping[str, Loop]
    last_tick_ns: Callable[[], int | None]

    def gauges(self) -> Iterator[tuple[str, float]]:
        """Queues and clocks."""
        yield "replaywatch_collector_waiting_batches", self.inbox.waiting
        yield "replaywatch_collector_waiting_writes", self.writer.waiting
        yield "replaywatch_collector_clock_skew_seconds", self.clocks.worst_skew_seconds

    def up(self) -> Iterator[tuple[str, bool]]:
        """Whether each stage works."""
        yield "writer", self.writer.is_alive
        for name, loop in self.loops.items():
            yield name, loop.is_alive and loop.trouble is None
