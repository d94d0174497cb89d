"""`POST /v1/batches`: from a request to a committed batch, or to an answer that says what to do instead."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from replaywatch.collector.access import Access
from replaywatch.collector.answers import document, problem
from replaywatch.collector.arrival import Limits, TooLarge, read_batch
from replaywatch.collector.detection import Detection
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.ingest import PreparedBatch, StoredBatch, prepare, store_batch
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import SchemaVersionError, StoreBusy, StoreError, WireError

BODY_SECONDS: Final = 30.0
# Decoding holds a batch several times over; two at once bound what a flood of large ones can take.
DECODERS: Final = 2
_LATER: Final = {"Retry-After": "1"}


@dataclass(slots=True)
class Received:
    """What was received: batches by outcome, windows stored."""

    batches: Counter[str] = field(default_factory=Counter)
    windows: int = 0


class _Refused(Exception):
    def __init__(self, outcome: str, answer: Response) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.answer = answer


class BatchEndpoint:
    """Receives batches; a sender is told of success only after the commit."""

    def __init__(
        self,
        writer: Writer,
        inbox: Inbox,
        detection: Detection,
        access: Access,
        limits: Limits,
        clock: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._inbox = inbox
        self._detection = detection
        self._access = access
        self._limits = limits
        self._clock = clock
        self._decoders = CapacityLimiter(DECODERS)
        self.received = Received()

    async def receive(self, request: Request) -> Response:
        """Answer one request."""
        try:
            stored = await self._store(request)
        except _Refused as refused:
            self.received.batches[refused.outcome] += 1
            return refused.answer
        self.received.batches["duplicate" if stored.is_duplicate else "accepted"] += 1
        windows = 0 if stored.is_duplicate else len(stored.batch.windows)
        self.received.windows += windows
        return document({"duplicate": stored.is_duplicate, "windows": windows})

    async def _store(self, request: Request) -> StoredBatch:
        is_gzip = self._check_headers(request)
        body = await self._read_body(request)
        prepared = await self._prepare(body, is_gzip)
        if self._inbox.is_full:
            raise _Refused("busy", problem(503, "busy", "detection lags behind; send again later", _LATER))
        if not self._detection.has_room_for(prepared.workloads):
            raise _Refused("busy", problem(503, "too_many_workloads", "no room for new workloads; raise workloads-max"))
        try:
            work = self._writer.offer(partial(store_batch, prepared=prepared), self._inbox.put)
            return await asyncio.wrap_future(work)
        except StoreBusy as error:
            raise _Refused("busy", problem(503, "busy", str(error), _LATER)) from None
        except StoreError as error:
            raise _Refused("failed", problem(503, "store_failed", str(error), _LATER)) from None

    def _check_headers(self, request: Request) -> bool:
        """Whether the body is gzip, once the headers allow reading it."""
        headers = request.headers
        if not self._access.allows(headers.get("authorization")):
            answer = problem(401, "unauthorized", "show the bearer token", {"WWW-Authenticate": "Bearer"})
            raise _Refused("unauthorized", answer)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused("refused", problem(415, "media_type", "send application/json"))
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("gzip", "identity"):
            raise _Refused("refused", problem(415, "content_encoding", "send gzip or no encoding"))
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._limits.body_bytes:
            raise self._too_large()
        return encoding == "gzip"

    async def _read_body(self, request: Request) -> bytes:
        body = bytearray()
        try:
            with anyio.fail_after(BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self._limits.body_bytes:
                        raise self._too_large()
        except TimeoutError:
            raise _Refused("refused", problem(408, "slow", "the body took too long; send smaller batches")) from None
        except ClientDisconnect:
            raise _Refused("refused", problem(400, "disconnected", "the sender went away")) from None
        return bytes(body)

    async def _prepare(self, body: bytes, is_gzip: bool) -> PreparedBatch:
        received_ns = self._clock()

        def work() -> PreparedBatch:
            batch = read_batch(body, is_gzip=is_gzip, limits=self._limits, received_ns=received_ns)
            return prepare(batch, received_ns)

        try:
            return await to_thread.run_sync(work, limiter=self._decoders)
        except TooLarge as error:
            raise _Refused("too_large", problem(413, "too_large", str(error))) from None
        except SchemaVersionError as error:
            raise _Refused("refused", problem(409, "schema_version", str(error))) from None
        except WireError as error:
            raise _Refused("refused", problem(400, "wire", str(error))) from None

    def _too_large(self) -> _Refused:
        text = f"the body is larger than {self._limits.body_bytes} bytes; send smaller batches"
        return _Refused("too_large", problem(413, "too_large", text, {"Connection": "close"}))
