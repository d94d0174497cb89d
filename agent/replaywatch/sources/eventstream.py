"""Cuts the `traceEvents` of a Chrome trace into chunks of typed events, so that a trace of any size fits in memory.

A chunk ends at a place that looks like the end of an event (`}` `,` `{`). Whether it is one, the decoder says: a chunk
begins where an event begins, so if its text decodes as a complete list, the cut was right; else another place is tried.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from replaywatch.contract.errors import UnknownSource, UnreadableSource
from replaywatch.sources.bytestream import ByteStream
from replaywatch.sources.recording import Progress

CHUNK_BYTES: Final = 1 << 19
# No event is this long; text that does not decode within it is damaged.
LONGEST_CHUNK_BYTES: Final = 64 << 20
MOST_METADATA_BYTES: Final = 64 << 20
_CUTS_TRIED: Final = 12
_ENDS_TRIED: Final = 64
_TAIL_BYTES: Final = 1 << 16

_BETWEEN: Final = re.compile(rb"\}\s*,\s*\{")
_END: Final = re.compile(rb"\}\s*,?\s*\]")
_KEY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_NOT_A_NUMBER: Final = re.compile(rb"(?i)([:,\[]\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])")
_BAD_ESCAPE: Final = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BLANK: Final = b" \t\r\n"

Number = int | float | None


class Args(msgspec.Struct, gc=False, rename={"graph_id": "graph id", "graph_node_id": "graph node id"}):
    """The arguments of an event that somebody reads."""

    correlation: Number = None
    stream: Number = None
    device: Number = None
    bytes: Number = None
    graph_id: Number = None
    graph_node_id: Number = None


class Event(msgspec.Struct, gc=False):
    """A trace event, as far as somebody reads it."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Number = None
    dur: Number = None
    args: Args | None = None


# Not strict: numbers may be written as texts.
_EVENTS: Final = msgspec.json.Decoder(list[Event], strict=False)
_ONE_EVENT: Final = msgspec.json.Decoder(Event, strict=False)
_RAW_EVENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class EventStream:
    """Iterates over lists of events; afterwards `metadata` holds every other top-level key of the trace.

    `refused` counts list entries that are no events. Raises: UnreadableSource with a sentence for anything that is not
    a complete Chrome trace.
    """

    def __init__(self, path: Path, progress: Progress | None = None, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.path = path
        self._chunk_bytes = chunk_bytes
        self.metadata: dict[str, Any] = {}
        self.refused = 0
        self._pieces = iter(ByteStream(path, progress))
        self._ended = False
        self._mending = False

    def __iter__(self) -> Iterator[list[Event]]:
        rest = yield from self._events(self._open_array())
        if rest is not None:
            self._read_tail(rest)

    # -- the head: everything before the events ---------------------------------------------------------------------

    def _open_array(self) -> tuple[bytes, bool]:
        """Bytes after the `[` of the events, and whether they stand inside an object."""
        data = self._more(b"", self._chunk_bytes)
        data = data.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK)
        if data[:1] == b"[":
            if data[1:].lstrip(_BLANK)[:1] not in (b"{", b"]"):
                raise UnknownSource(f"{self.path} is a JSON list, but not of trace events; name a torch.profiler trace")
            return data[1:], False
        searched = 0
        while True:
            for match in _KEY.finditer(data, searched):
                if self._take_metadata(data[: match.end() - 1] + b"null}"):
                    return data[match.end() :], True
            searched = max(0, len(data) - 64)
            before = len(data)
            if before < MOST_METADATA_BYTES:
                data = self._more(data, max(self._chunk_bytes, before))
            if len(data) == before:
                raise self._without_events(data)

    def _without_events(self, data: bytes) -> UnreadableSource:
        try:
            _OBJECT.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return UnreadableSource(
                f"{self.path} breaks off before its trace events; wait until it is written completely, or record again"
            )
        return UnreadableSource(
            f"{self.path} is JSON without traceEvents, so it is no Chrome trace; "
            "export one with torch.profiler's export_chrome_trace"
        )

    def _take_metadata(self, text: bytes) -> bool:
        for form in (text, *_mended(text)):
            try:
                found = _OBJECT.decode(form)
            except (msgspec.DecodeError, RecursionError):
                continue
            found.pop("traceEvents", None)
            self.metadata.update(found)
            return True
        return False

    # -- the events -------------------------------------------------------------------------------------------------

    def _events(self, opened: tuple[bytes, bool]) -> Generator[list[Event], None, bytes | None]:
        """Yield chunks; returns what follows the array inside an object, None for a bare list."""
        data, inside_object = opened
        want = self._chunk_bytes
        while True:
            data = self._more(data, want)
            if data.lstrip(_BLANK)[:1] == b"]":
                rest = data.lstrip(_BLANK)[1:]
                return rest if inside_object else None
            cut = self._cut(self._mend(data) if self._mending else data)
            if cut is None and not self._mending:
                cut = self._cut(self._mend(data))
                self._mending = cut is not None
            if cut is None:
                if self._ended or want >= LONGEST_CHUNK_BYTES:
                    raise self._broken(data)
                want *= 2
                continue
            events, data, closed = cut
            yield events
            want = self._chunk_bytes
            if closed:
                return data if inside_object else None

    def _cut(self, data: bytes) -> tuple[list[Event], bytes, bool] | None:
        """Events of the longest whole part of some text, the text after it, and whether the array ended."""
        for end, after, closed in self._places(data):
            events = self._decode(data[:end])
            if events is not None:
                return events, data[after:], closed
        return None

    def _places(self, data: bytes) -> Iterator[tuple[int, int, bool]]:
        """Where a chunk may end: (end of the last event, start of the rest, whether the array ends there)."""
        size = _TAIL_BYTES
        cuts: list[re.Match[bytes]] = []
        while not cuts and size < 2 * len(data):
            begin = max(0, len(data) - size)
            cuts = list(_BETWEEN.finditer(data, begin))[-_CUTS_TRIED:]
            size *= 8
        for match in reversed(cuts):
            yield match.start() + 1, match.end() - 1, False
        for number, match in enumerate(_END.finditer(data)):
            if number >= _ENDS_TRIED:
                break
            yield match.start() + 1, match.end(), True

    def _decode(self, text: bytes) -> list[Event] | None:
        whole = b"[" + text + b"]"
        try:
            return _EVENTS.decode(whole)
        except msgspec.ValidationError:
            return self._decode_singly(whole)
        except (msgspec.DecodeError, RecursionError):
            return None

    def _decode_singly(self, whole: bytes) -> list[Event] | None:
        """Each entry for itself, so that one odd entry costs only itself."""
        try:
            entries = _RAW_EVENTS.decode(whole)
        except (msgspec.DecodeError, RecursionError):
            return None
        events: list[Event] = []
        for entry in entries:
            try:
                events.append(_ONE_EVENT.decode(entry))
            except (msgspec.DecodeError, RecursionError):
                self.refused += 1
        return events

    @staticmethod
    def _mend(data: bytes) -> bytes:
        """The text mended up to its last `}`: what follows may break off inside an escape."""
        whole = data.rfind(b"}") + 1
        return next(_mended(data[:whole]), data[:whole]) + data[whole:]

    def _broken(self, data: bytes) -> UnreadableSource:
        if self._ended:
            return UnreadableSource(
                f"{self.path} is damaged or breaks off inside its trace events; "
                "wait until it is written completely, or record it again"
            )
        return UnreadableSource(f"{self.path} has trace events that are not JSON; record or export it again")

    # -- the tail: everything after the events ----------------------------------------------------------------------

    def _read_tail(self, rest: bytes) -> None:
        rest = self._more(rest, MOST_METADATA_BYTES).strip(_BLANK)
        if rest[:1] == b",":
            rest = rest[1:]
        if not self._take_metadata(b"{" + rest):
            raise UnreadableSource(
                f"{self.path} breaks off after its trace events; wait until it is written completely, or record again"
            )

    def _more(self, data: bytes, want: int) -> bytes:
        """At least `want` bytes where the file has them."""
        if len(data) >= want or self._ended:
            return data
        parts, size = [data], len(data)
        while size < want:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
                break
            parts.append(piece)
            size += len(piece)
        return b"".join(parts)


def _mended(text: bytes) -> Iterator[bytes]:
    """The text with what writers of traces are known to get wrong put right: NaN, stray escapes, broken UTF-8."""
    mended = _NOT_A_NUMBER.sub(rb"\1null", text)
    mended = _BAD_ESCAPE.sub(lambda m: m[0] if m[1] else rb"\\", mended)
    mended = _CONTROL.sub(b" ", mended)
    mended = mended.decode("utf-8", "replace").encode()
    if mended != text:
        yield mended
