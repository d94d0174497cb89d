"""Follows a text file that is appended to, rotated or truncated, and remembers over restarts how far it came."""

from __future__ import annotations

import codecs
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from replaywatch.contract.errors import UnreadableSource

# What one reading takes at most. Of a longer file the start (it holds the configuration) and the end are read.
MAX_READ_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """New text. Shape: `seen_before` is what an earlier run had read already, given again once for its context."""

    text: str
    seen_before: str = ""
    is_new_file: bool = False


class LogFollower:
    """Reads what was appended since the last call. `memory` is a file for the position; None forgets it."""

    def __init__(self, path: Path, memory: Path | None) -> None:
        self.path = path
        self._memory = memory
        self._inode: int | None = None
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> Reading:
        """The new text, empty where nothing came. Raises: UnreadableSource."""
        try:
            with open(self.path, "rb") as stream:
                return self._read(stream)
        except OSError as error:
            raise UnreadableSource(f"{self.path} cannot be read ({error.strerror}); check --engine-log") from None

    def remember(self) -> None:
        """Keep the position, once what was read is dealt with."""
        if self._memory is not None:
            with suppress(OSError):
                fresh = self._memory.with_suffix(".new")
                fresh.write_text(json.dumps({"inode": self._inode, "position": self._position}))
                fresh.replace(self._memory)

    def _read(self, stream: BinaryIO) -> Reading:
        status = os.fstat(stream.fileno())
        first = self._inode is None
        is_new = status.st_ino != self._inode or status.st_size < self._position
        seen = ""
        if is_new:
            self._inode, self._position = status.st_ino, 0
            self._decoder.reset()
            known = self._known_position(status) if first else 0
            if known:
                seen = self._text(stream, known)
        return Reading(self._text(stream, status.st_size), seen, is_new)

    def _text(self, stream: BinaryIO, end: int) -> str:
        """The text from the position to an offset, with its middle left out where it is too long."""
        stream.seek(self._position)
        length, half = end - self._position, MAX_READ_BYTES // 2
        self._position = end
        if length <= MAX_READ_BYTES:
            return self._decoder.decode(stream.read(length))
        head = stream.read(half)
        stream.seek(end - half)
        return self._decoder.decode(head + b"\n" + stream.read(half))

    def _known_position(self, status: os.stat_result) -> int:
        """How far an earlier run came in this very file; 0 when that is not known."""
        if self._memory is None:
            return 0
        try:
            known = json.loads(self._memory.read_text())
            position = known["position"] if known["inode"] == status.st_ino else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return position if isinstance(position, int) and 0 <= position <= status.st_size else 0
