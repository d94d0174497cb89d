"""Follows a text file that is appended to, rotated or truncated, and remembers over restarts how far it came."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

from replaywatch.contract.errors import UnreadableSource

# What one reading takes at most. Of a longer file the start (it holds the configuration) and the end are read.
MAX_READ_BYTES: Final = 4 << 20
# The first bytes, with their stamps, tell a file that was written anew from one that grew.
HEAD_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Reading:
    """New text. Shape: `seen_before` is what an earlier run had read already, given again once for its context."""

    text: str
    seen_before: str = ""


class LogFollower:
    """Reads what was appended since the last call. `memory` is a file for the position; None forgets it.

    The file stays open between readings, so that what was still written to one that was renamed is read too.
    """

    def __init__(self, path: Path, memory: Path | None) -> None:
        self.path = path
        self._memory = memory
        self._stream: FileIO | None = None
        self._position = 0
        self._head = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> Reading:
        """The new text, empty where nothing came. Raises: UnreadableSource."""
        try:
            return self._begin() if self._stream is None else Reading(self._go_on(self._stream))
        except OSError as error:
            raise UnreadableSource(f"{self.path} cannot be read ({error.strerror}); check --engine-log") from None

    def remember(self) -> None:
        """Keep the position, once what was read is dealt with."""
        if self._memory is not None and self._stream is not None:
            known = {"inode": _status(self._stream).st_ino, "position": self._position, **_digest(self._head)}
            with suppress(OSError):
                fresh = self._memory.with_suffix(".new")
                fresh.write_text(json.dumps(known))
                fresh.replace(self._memory)

    def close(self) -> None:
        """Close the file; the next reading would begin anew."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _begin(self) -> Reading:
        stream = self._turn_to(FileIO(self.path))
        seen = self._text(stream, known) if (known := self._known_position(stream)) else ""
        return Reading(self._text(stream, _status(stream).st_size), seen)

    def _go_on(self, stream: FileIO) -> str:
        """What was appended; of a file that was renamed or written anew its rest, then the new one from its start."""
        anew = _status(stream).st_size < self._position or _head(stream, len(self._head)) != self._head
        following = self._following(stream, anew)
        rest = "" if anew else self._text(stream, _status(stream).st_size)
        if following is None:
            return rest
        stream.close()
        self._turn_to(following)
        return f"{rest}\n{self._text(following, _status(following).st_size)}"

    def _following(self, stream: FileIO, anew: bool) -> FileIO | None:
        """The file at the path, opened, where another one is there now or the same was written anew."""
        try:
            found = FileIO(self.path)
        except FileNotFoundError:  # between the renaming and the new file's first line
            return None
        if anew or not os.path.samestat(_status(found), _status(stream)):
            return found
        found.close()
        return None

    def _turn_to(self, stream: FileIO) -> FileIO:
        """Read this file, unbuffered so that nothing written over is kept, from its start."""
        self._stream, self._position, self._head = stream, 0, b""
        self._decoder.reset()
        return stream

    def _text(self, stream: FileIO, end: int) -> str:
        """The text from the position to an offset, with its middle left out where it is too long."""
        if len(self._head) < HEAD_BYTES:
            self._head = _head(stream, min(end, HEAD_BYTES))
        stream.seek(self._position)
        length, half = end - self._position, MAX_READ_BYTES // 2
        self._position = end
        if length <= MAX_READ_BYTES:
            return self._decoder.decode(stream.read(length))
        head = stream.read(half)
        stream.seek(end - half)
        return self._decoder.decode(head + b"\n" + stream.read(half))

    def _known_position(self, stream: FileIO) -> int:
        """How far an earlier run came in this very file; 0 when that is not known."""
        if self._memory is None:
            return 0
        status = _status(stream)
        try:
            known = json.loads(self._memory.read_text())
            position = known["position"]
            same = known["inode"] == status.st_ino and _begins_as(known, stream)
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return position if same and isinstance(position, int) and 0 <= position <= status.st_size else 0


def _status(stream: FileIO) -> os.stat_result:
    return os.fstat(stream.fileno())


def _head(stream: FileIO, length: int) -> bytes:
    stream.seek(0)
    return stream.read(min(max(length, 0), HEAD_BYTES))


def _begins_as(known: dict[str, Any], stream: FileIO) -> bool:
    """Whether a file begins as the remembered one. Memories written before heads were kept go by the inode alone."""
    return "head" not in known or _digest(_head(stream, known["head_bytes"]))["head"] == known["head"]


def _digest(head: bytes) -> dict[str, str | int]:
    return {"head_bytes": len(head), "head": hashlib.sha256(head).hexdigest()[:16]}
