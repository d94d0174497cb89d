"""Where a batch goes once it is read: into the store of this process, or onto the bus."""

from __future__ import annotations

import asyncio
from typing import Protocol

from replaywatch.collector.detection import Detection
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.ingest import PreparedBatch
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import StoreBusy


class Sink(Protocol):
    """Takes batches for good."""

    async def take(self, prepared: PreparedBatch) -> bool:
        """Keep a batch; True when its key was seen before. Raises: StoreBusy, StoreError."""


class StoreSink:
    """Stores batches and hands them to the detection of this process."""

    def __init__(self, writer: Writer, inbox: Inbox, detection: Detection) -> None:
        self._writer = writer
        self._inbox = inbox
        self._detection = detection

    async def take(self, prepared: PreparedBatch) -> bool:
        """Store a batch and wait for the commit. Raises: StoreBusy, StoreError."""
        if self._inbox.is_full:
            raise StoreBusy("detection lags behind; send again later")
        if not self._detection.has_room_for(prepared.workload_ids):
            raise TooManyWorkloads("no room for new workloads; raise workloads-max")
        stored = await asyncio.wrap_future(self._writer.offer_batch(prepared, self._inbox.put))
        return stored.is_duplicate


class TooManyWorkloads(StoreBusy):
    """New workloads beyond the number that is kept in sight."""
