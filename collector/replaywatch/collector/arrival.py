"""From the bytes of a request to a batch that may be stored: limits, decompression, decoding, clocks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from replaywatch.collector.quick_decode import decode_quickly
from replaywatch.contract.errors import WireError
from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, jsonable

AHEAD_MAX_NS: Final = 60 * 10**9
WINDOW_MAX_NS: Final = 24 * 3600 * 10**9
LAST_NS: Final = (1 << 63) - 1
# An upload may take as long as a request may (30 s), and both clocks may be off by a little more.
SKEW_TOLERANCE_NS: Final = 45 * 10**9
KEY_MAX: Final = 200
WINDOWS_MAX: Final = 10_000
ID_MAX: Final = 64
_GZIP: Final = 31
_CHUNK: Final = 1 << 16


class TooLarge(WireError):
    """A body above a limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest body as sent and after decompression, in bytes."""

    body_bytes: int
    inflated_bytes: int


def inflate(body: bytes, limit_bytes: int) -> bytes:
    """The content of a gzip body, given up as soon as it exceeds the limit, whatever it would become.

    Raises: TooLarge, WireError.
    """
    stream = zlib.decompressobj(wbits=_GZIP)
    parts: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(body), _CHUNK):
            rest = body[start : start + _CHUNK]
            while rest:
                part = stream.decompress(rest, limit_bytes - size + 1)
                size += len(part)
                if size > limit_bytes:
                    raise TooLarge(f"the batch is larger than {limit_bytes} bytes once decompressed; send smaller ones")
                parts.append(part)
                rest = stream.unconsumed_tail
    except zlib.error as error:
        raise WireError(f"the body is not gzip ({error}); check Content-Encoding") from None
    if not stream.eof or stream.unused_data:
        raise WireError("the gzip body is cut short or has more behind it; send it again")
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch with its windows in their place in time; `shift_ns` was added to them."""

    batch: Batch
    shift_ns: int


def read_batch(
    body: bytes, *, is_gzip: bool, limits: Limits, received_ns: int, shift_ns: int | None = None
) -> ReadBatch:
    """The batch in a body, checked. `shift_ns` is that of an earlier reading; None finds it out.

    Raises: TooLarge, SchemaVersionError, WireError.
    """
    content = inflate(body, limits.inflated_bytes) if is_gzip else body
    batch = decode_quickly(content)
    _check_texts(content, batch)
    if not batch.key or len(batch.key) > KEY_MAX:
        raise WireError(f"the batch key must have 1 to {KEY_MAX} characters")
    if len(batch.windows) > WINDOWS_MAX:
        raise WireError(f"the batch has {len(batch.windows)} windows; send at most {WINDOWS_MAX} at once")
    _check_snapshots(batch.fingerprints)
    _check_snapshots(batch.configs)
    shift_ns = clock_shift_ns(batch.sent_ns, received_ns) if shift_ns is None else shift_ns
    windows = tuple(_placed(w, received_ns, shift_ns) for w in batch.windows)
    return ReadBatch(replace(batch, windows=windows), shift_ns)


def clock_shift_ns(sent_ns: int, received_ns: int) -> int:
    """What to add to a sender's times, from when it says that it sent and when that arrived; 0 while they agree.

    A sender stamps each attempt anew, so a batch that waited for hours does not look like a clock that is behind.
    Within the tolerance lies the way from there to here: a slow upload must not move windows.
    """
    skew_ns = received_ns - sent_ns
    return 0 if sent_ns <= 0 or abs(skew_ns) <= SKEW_TOLERANCE_NS else skew_ns


def _check_texts(content: bytes, batch: Batch) -> None:
    """Refuse texts that no database or page can carry: lone surrogates and NUL, raw or escaped."""
    try:
        if not content.isascii():
            content.decode("utf-8")
        if rb"\u" not in content:
            return
        if rb"\ud" in content.lower():
            json.dumps(jsonable(batch), ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise WireError("the batch has text that is not Unicode; check the names that the sender read") from None
    if rb"\u0000" in content:
        raise WireError("the batch has text with a NUL character; check the names that the sender read")


def _check_snapshots(snapshots: Mapping[str, object]) -> None:
    for given in snapshots:
        if not given or len(given) > ID_MAX:
            raise WireError(f"a snapshot id must have 1 to {ID_MAX} characters")


def _placed(window: Window, received_ns: int, shift_ns: int) -> Window:
    """The window in its place in time; one that still ends ahead of now is pulled back to now."""
    if not 0 <= window.start_ns <= window.end_ns:
        raise WireError("a window must start at 0 or later and end after its start")
    if window.end_ns - window.start_ns > WINDOW_MAX_NS:
        raise WireError("a window must not be longer than a day")
    for given in (window.fingerprint_id, window.config_id):
        if given is not None and len(given) > ID_MAX:
            raise WireError(f"a snapshot id must have at most {ID_MAX} characters")
    ahead_ns = window.end_ns + shift_ns - received_ns
    move_ns = shift_ns if ahead_ns <= AHEAD_MAX_NS else received_ns - window.end_ns
    if not move_ns:
        return window
    end_ns = min(LAST_NS, max(0, window.end_ns + move_ns))
    return replace(window, start_ns=min(end_ns, max(0, window.start_ns + move_ns)), end_ns=end_ns)
