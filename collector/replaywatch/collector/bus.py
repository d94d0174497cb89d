"""The bus: a NATS JetStream stream with one subject for each partition, and a thread that talks to it.

The stream is a work queue on disk, replicated three times where the cluster has three servers. A batch is acknowledged
to its sender once the stream has it; a worker takes it off once the store has it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, Final, TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

from replaywatch.collector.bus_access import BusAccess, GuardedClient
from replaywatch.contract.errors import ConfigurationError, StoreError

LOG = logging.getLogger("replaywatch.collector")
STREAM: Final = "REPLAYWATCH"
SUBJECT: Final = "replaywatch.batches"
REPLICAS: Final = 3
CONNECT_SECONDS: Final = 10
PUBLISH_SECONDS: Final = 5.0
REDELIVER_SECONDS: Final = 30.0
KEPT_SECONDS: Final = 24 * 3600.0
FETCH_SECONDS: Final = 1.0
UNACKNOWLEDGED_MAX: Final = 512
T = TypeVar("T")


def subject_of(partition: int) -> str:
    """The subject of a partition's batches."""
    return f"{SUBJECT}.{partition}"


class Bus:
    """A connection in a thread of its own, which may be used from any other."""

    def __init__(self, servers: str, access: BusAccess | None = None, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._access = access or BusAccess()
        self._connect_seconds = connect_seconds
        self._servers = [s.strip() for s in servers.split(",") if s.strip()]
        if not self._servers or not all(s.startswith(("nats://", "tls://")) for s in self._servers):
            raise ConfigurationError("--bus must be nats://HOST:PORT, several servers with commas between them")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="replaywatch-bus", daemon=True)
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._complaint = self._refusal = ""

    def start(self) -> None:
        """Connect, and make the stream where it is missing. Raises: StoreError."""
        self._thread.start()
        try:
            self.call(self._connect()).result(self._connect_seconds + 30)
        except (NatsError, OSError, asyncio.TimeoutError, FutureTimeout) as error:
            told = self._refusal or self._complaint or f"{type(error).__name__}: {error}"
            raise StoreError(f"the bus cannot be used ({told}); check --bus and the options beside it") from None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._client is not None and self._client.is_connected

    @property
    def largest_bytes(self) -> int:
        """The largest message that the servers take."""
        return self._client.max_payload if self._client is not None else 0

    def call(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the bus's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def publish(self, partition: int, content: bytes, headers: dict[str, str]) -> None:
        """Put a message into the stream for good. Raises: StoreError.

        Without the server's own deduplication by message id: a leader notes the id when it proposes a message, and
        answers a second try with "duplicate" although the first may never be agreed on. Ten minutes of kills lost 861
        of 20,800 batches that way (nats-server 2.9.10). A message that is there twice is harmless: the store knows its
        key.
        """
        assert self._stream is not None
        try:
            await self._stream.publish(subject_of(partition), content, PUBLISH_SECONDS, STREAM, dict(headers))
        except (NatsError, OSError, asyncio.TimeoutError) as error:
            raise StoreError(f"the bus did not take the batch ({type(error).__name__}); send again later") from None

    async def subscription(self, partition: int, *, is_new: bool) -> JetStreamContext.PullSubscription:
        """Where a partition's messages are fetched. `is_new`: what another worker fetched and kept is to come again.

        Raises: NatsError.
        """
        assert self._stream is not None
        name = f"worker-{partition}"
        if is_new:
            with suppress(NotFoundError):
                await self._stream.delete_consumer(STREAM, name)
        wanted = ConsumerConfig(
            durable_name=name,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=REDELIVER_SECONDS,
            max_ack_pending=UNACKNOWLEDGED_MAX,
            filter_subject=subject_of(partition),
        )
        await self._stream.add_consumer(STREAM, wanted)
        return await self._stream.pull_subscribe_bind(consumer=name, stream=STREAM)

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            with suppress(NatsError, OSError, TimeoutError, FutureTimeout):
                self.call(self._client.close()).result(2)
        with suppress(TimeoutError, FutureTimeout):
            self.call(_end_all()).result(1)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2)
        if not self._thread.is_alive():
            self._loop.close()

    async def _connect(self) -> None:
        self._client = GuardedClient()
        options: dict[str, Any] = {
            "name": "replaywatch-collector",
            "connect_timeout": 2,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.2,
            "allow_reconnect": True,
            "error_cb": self._on_error,
            # A server whose cable is pulled is noticed after two to three of these.
            "ping_interval": 2,
            "max_outstanding_pings": 2,
            **self._access.arguments(),
        }
        # By itself the driver tries for ever, also with a password that is wrong.
        await asyncio.wait_for(self._client.connect(self._servers, **options), self._connect_seconds)
        self._stream = self._client.jetstream(timeout=PUBLISH_SECONDS)
        wanted = StreamConfig(
            name=STREAM,
            subjects=[f"{SUBJECT}.*"],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
            num_replicas=REPLICAS if self._cluster_size() >= REPLICAS else 1,
            max_age=KEPT_SECONDS,
        )
        await self._make_stream(wanted)

    async def _make_stream(self, wanted: StreamConfig) -> None:
        assert self._stream is not None
        for attempt in range(20):
            try:
                await self._stream.stream_info(STREAM)
                return
            except NotFoundError:
                pass
            except (NatsError, asyncio.TimeoutError) as error:
                if attempt == 19:
                    raise StoreError(f"the bus has no JetStream ({type(error).__name__})") from None
            with suppress(NatsError, asyncio.TimeoutError, BadRequestError):
                await self._stream.add_stream(wanted)
                return
            # A cluster that just started has no leader yet.
            await asyncio.sleep(0.5)
        raise StoreError("the bus did not make its stream in time; check that JetStream is on and has a quorum")

    def _cluster_size(self) -> int:
        assert self._client is not None
        return len({*self._servers, *(str(s.netloc) for s in self._client.discovered_servers)})

    async def _on_error(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._complaint:
            LOG.warning("the bus: %s", text)
        self._complaint = text
        if isinstance(error, (NatsError, ssl.SSLError)):
            self._refusal = text  # the server's own words say more than the broken line that follows them


async def _end_all() -> None:
    """End what the driver still waits for, such as a server that never let it in."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
