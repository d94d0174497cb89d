"""The stages of a process that shares a fleet, started and stopped in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.applications import Starlette

from replaywatch.collector.bus import Bus
from replaywatch.collector.ingest import PreparedBatch
from replaywatch.collector.loop import Loop
from replaywatch.collector.notifier import Notifier
from replaywatch.collector.store import Store
from replaywatch.collector.worker import Worker
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCollector:
    """The web application and the stages behind it; `worker` is None in a process that only takes batches in."""

    web: Starlette
    store: Store
    writer: Writer
    bus: Bus
    worker: Worker | None
    notifier: Notifier | None
    loops: Mapping[str, Loop]

    def start(self) -> None:
        """Start. Raises: StoreError when the bus cannot be used."""
        self.bus.start()
        self.writer.start()
        for loop in self.loops.values():
            loop.start()

    def stop(self) -> None:
        """Stop judging, hand the partitions over, write what waits, disconnect."""
        if self.notifier is not None:
            self.notifier.close()
        for loop in self.loops.values():
            loop.stop(5.0 if loop is self.loops.get("worker") else 0.5)
        if self.worker is not None and not self.loops["worker"].is_alive:
            self.worker.close()
        self.writer.close()
        self.bus.close()
        self.store.close()


class NoSink:
    """A process that takes no batches."""

    async def take(self, prepared: PreparedBatch) -> bool:
        """Raises: StoreError, always."""
        raise StoreError("this process is a worker; send batches to one with --role ingest or all")
