"""Ingest without a store: a batch goes onto the bus, once for each partition that its windows belong to."""

from __future__ import annotations

import asyncio

from replaywatch.collector.arrival import TooLarge
from replaywatch.collector.bus import Bus
from replaywatch.collector.cohorts import Sharing
from replaywatch.collector.ingest import PreparedBatch

RECEIVED = "Replaywatch-Received"
SHIFT = "Replaywatch-Shift"
GZIP = "Replaywatch-Gzip"
_HEADERS_BYTES = 1024


class BusSink:
    """Publishes batches; it keeps nothing, so that any number of such processes serve side by side."""

    def __init__(self, bus: Bus, sharing: Sharing) -> None:
        self._bus = bus
        self._sharing = sharing

    async def take(self, prepared: PreparedBatch) -> bool:
        """Publish a batch and wait for the stream to have it. Raises: StoreError, TooLarge."""
        if len(prepared.body) + _HEADERS_BYTES > self._bus.largest_bytes:
            raise TooLarge(f"the bus takes {self._bus.largest_bytes} bytes at once; send smaller batches")
        headers = {
            RECEIVED: str(prepared.received_ns),
            SHIFT: str(prepared.shift_ns),
            GZIP: "1" if prepared.is_gzip else "0",
        }
        partitions = self._sharing.partitions_of(prepared.batch.windows)
        published = [self._bus.call(self._bus.publish(p, prepared.body, headers)) for p in partitions]
        # Only when every part is there is the batch; one that failed half-way is sent again. Whether a key was seen
        # before only the store can tell, later.
        await asyncio.gather(*map(asyncio.wrap_future, published))
        return False
