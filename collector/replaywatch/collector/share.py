"""One partition of the fleet as one worker has it: fetched from the bus, stored, judged, told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from replaywatch.collector.arrival import Limits, read_batch
from replaywatch.collector.bus import FETCH_SECONDS, Bus
from replaywatch.collector.bus_sink import GZIP, RECEIVED, SHIFT
from replaywatch.collector.cohorts import Sharing
from replaywatch.collector.detection import Detection
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.ingest import PreparedBatch, prepare
from replaywatch.collector.loop import Loop
from replaywatch.collector.view_keeping import ViewKeeper
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import StoreBusy, StoreError, WireError

LOG = logging.getLogger("replaywatch.collector")
FETCH_MAX: Final = 64
SILENT_MAX: Final = 15
_ANY: Final = Limits(1 << 40, 1 << 40)
MakeDetection = Callable[[Writer, Inbox, int], Detection]


class Share:
    """Runs a partition until stopped."""

    def __init__(
        self,
        partition: int,
        bus: Bus,
        writer: Writer,
        sharing: Sharing,
        make_detection: MakeDetection,
        tick_seconds: float,
    ) -> None:
        self.partition = partition
        self._bus = bus
        self._writer = writer
        self._sharing = sharing
        self.inbox = Inbox()
        self._stopping = threading.Event()
        writer.start()
        self.detection = make_detection(writer, self.inbox, partition)
        self._views = ViewKeeper(writer)
        self._loop = Loop(f"detection-{partition}", tick_seconds, self._tick)
        self._fetching = bus.call(self._fetch())
        self._loop.start()

    @property
    def is_alive(self) -> bool:
        """Whether it fetches and judges."""
        return self._loop.is_alive and not self._fetching.done()

    def ask_to_stop(self) -> None:
        """Fetch no more; several shares end together this way."""
        self._stopping.set()

    def stop(self, *, is_lost: bool) -> None:
        """Stop; write down what is remembered unless another worker has the partition already."""
        self.ask_to_stop()
        self._loop.stop()
        try:
            self._fetching.exception(2 * FETCH_SECONDS)
        except (TimeoutError, FutureTimeout, CancelledError):
            # A bus that is gone never answers; what was not acknowledged there comes to the next worker.
            self._fetching.cancel()
        if not is_lost and not self._loop.is_alive:
            try:
                self.detection.close()
            except StoreError as error:
                LOG.warning("partition %d: the last checkpoint was not written: %s", self.partition, error)
        self._writer.close()

    def _tick(self) -> None:
        self._views.keep(self.detection.tick())

    async def _fetch(self) -> None:
        is_new = True
        while not self._stopping.is_set():
            try:
                subscription = await self._bus.subscription(self.partition, is_new=is_new)
                is_new = False
                try:
                    await self._take_from(subscription)
                finally:
                    await subscription.unsubscribe()
            except (NatsError, OSError, asyncio.TimeoutError) as error:
                LOG.info("partition %d: the bus does not answer (%s); trying again", self.partition, error)
                await asyncio.sleep(0.5)

    async def _take_from(self, subscription: JetStreamContext.PullSubscription) -> None:
        """Store what comes; comes back after a long silence, to make sure that the consumer is still there."""
        silent = 0
        while silent < SILENT_MAX and not self._stopping.is_set():
            try:
                messages = await subscription.fetch(FETCH_MAX, FETCH_SECONDS)
            except asyncio.TimeoutError:
                silent += 1
                continue
            silent = 0
            await self._turn(messages)

    async def _turn(self, messages: list[Msg]) -> None:
        """Store some messages and take them off the bus; those that the store refused come again."""
        while self.inbox.is_full and not self._stopping.is_set():
            await asyncio.sleep(0.1)
        await asyncio.gather(*(self._settle(message) for message in messages))

    async def _settle(self, message: Msg) -> None:
        try:
            prepared = await asyncio.to_thread(self._read, message)
        except (WireError, ValueError, KeyError) as error:
            # It was checked when it came in; what cannot be read now will not be later.
            LOG.error("partition %d: a batch on the bus cannot be read (%s); it is dropped", self.partition, error)
            await message.term()
            return
        try:
            await asyncio.wrap_future(self._writer.offer_batch(prepared, self.inbox.put))
        except (StoreBusy, StoreError) as error:
            LOG.info("partition %d: a batch waits for the store: %s", self.partition, error)
            await message.nak(delay=1)
            return
        await message.ack()

    def _read(self, message: Msg) -> PreparedBatch:
        headers = message.headers or {}
        received_ns, shift_ns = int(headers[RECEIVED]), int(headers[SHIFT])
        is_gzip = headers[GZIP] == "1"
        read = read_batch(message.data, is_gzip=is_gzip, limits=_ANY, received_ns=received_ns, shift_ns=shift_ns)
        mine = tuple(w for w in read.batch.windows if self._sharing.partition_of(w.workload) == self.partition)
        # Each partition stores its part of a batch under a key of its own.
        batch = replace(read.batch, key=f"{read.batch.key}/{self.partition}", windows=mine)
        return prepare(
            batch,
            received_ns,
            body=message.data,
            is_gzip=is_gzip,
            shift_ns=shift_ns,
            partition=self.partition,
        )
