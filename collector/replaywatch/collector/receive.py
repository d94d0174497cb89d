"""`POST /v1/batches`: from a request to a committed batch, or to an answer that says what to do instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from replaywatch.collector.access import NOBODY, Access, Caller
from replaywatch.collector.allowance import Allowances
from replaywatch.collector.answers import document, problem
from replaywatch.collector.arrival import Limits, TooLarge, read_batch
from replaywatch.collector.clocks import Clocks
from replaywatch.collector.gate import refusal
from replaywatch.collector.ingest import PreparedBatch, prepare
from replaywatch.collector.sink import Sink, TooManyWorkloads
from replaywatch.contract.errors import SchemaVersionError, StoreBusy, StoreError, WireError
from replaywatch.contract.wire import WIRE_VERSION

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
    """Receives batches; a sender is told of success only after its sink has them for good."""

    def __init__(self, sink: Sink, access: Access, limits: Limits, clock: Callable[[], int], clocks: Clocks) -> None:
        self._sink = sink
        self._access = access
        self._limits = limits
        self._clock = clock
        self._clocks = clocks
        self._allowances = Allowances()
        self._decoders = CapacityLimiter(DECODERS)
        self.received = Received()

    async def receive(self, request: Request) -> Response:
        """Answer one request."""
        try:
            prepared, is_duplicate = await self._take(request)
        except _Refused as refused:
            self.received.batches[refused.outcome] += 1
            return refused.answer
        self.received.batches["duplicate" if is_duplicate else "accepted"] += 1
        windows = 0 if is_duplicate else len(prepared.batch.windows)
        self.received.windows += windows
        return document({"duplicate": is_duplicate, "windows": windows})

    async def _take(self, request: Request) -> tuple[PreparedBatch, bool]:
        caller = self._check_caller(request)
        is_gzip = self._check_headers(request)
        body = await self._read_body(request)
        prepared = await self._prepare(body, is_gzip)
        denied = self._allowances.take(caller.token, len(prepared.batch.windows), prepared.received_ns)
        if denied is not None:
            later = {"Retry-After": str(denied.retry_seconds)}
            raise _Refused("limited", problem(429, "limited", denied.reason, later))
        try:
            is_duplicate = await self._sink.take(prepared)
        except TooLarge as error:
            raise _Refused("too_large", problem(413, "too_large", str(error))) from None
        except TooManyWorkloads as error:
            raise _Refused("busy", problem(503, "too_many_workloads", str(error))) from None
        except StoreBusy as error:
            raise _Refused("busy", problem(503, "busy", str(error), _LATER)) from None
        except StoreError as error:
            raise _Refused("failed", problem(503, "store_failed", str(error), _LATER)) from None
        self._clocks.note(prepared.batch, prepared.received_ns)
        return prepared, is_duplicate

    def _check_caller(self, request: Request) -> Caller:
        caller = self._access.caller(request)
        if caller.by_cookie:
            caller = NOBODY
        refused = refusal(self._access, caller, "ingest")
        if refused is not None:
            raise _Refused("unauthorized", refused)
        return caller

    def _check_headers(self, request: Request) -> bool:
        """Whether the body is gzip, once the headers allow reading it."""
        headers = request.headers
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
            read = read_batch(body, is_gzip=is_gzip, limits=self._limits, received_ns=received_ns)
            return prepare(read.batch, received_ns, body=body, is_gzip=is_gzip, shift_ns=read.shift_ns)

        try:
            return await to_thread.run_sync(work, limiter=self._decoders)
        except TooLarge as error:
            raise _Refused("too_large", problem(413, "too_large", str(error))) from None
        except SchemaVersionError as error:
            spoken = {"error": {"code": "schema_version", "message": str(error)}, "wire_versions": [WIRE_VERSION]}
            raise _Refused("refused", document(spoken, 409)) from None
        except WireError as error:
            raise _Refused("refused", problem(400, "wire", str(error))) from None

    def _too_large(self) -> _Refused:
        text = f"the body is larger than {self._limits.body_bytes} bytes; send smaller batches"
        return _Refused("too_large", problem(413, "too_large", text, {"Connection": "close"}))
