"""A file as a stream of plain bytes: gzip is undone in pieces, progress is told, damage has a name."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from replaywatch.contract.errors import UnreadableSource
from replaywatch.sources.recording import Progress

# Small pieces stay in the processor's cache from inflating to decoding.
PIECE_BYTES: Final = 1 << 16
# Most bytes that one compressed piece may become at a time; a bomb is then only slow, never large.
INFLATED_BYTES: Final = 1 << 19
GZIP_MAGIC: Final = b"\x1f\x8b"
_TELL_EVERY_S: Final = 0.2


def is_gzip(head: bytes) -> bool:
    """Whether a file begins as gzip does."""
    return head[:2] == GZIP_MAGIC


def open_source(path: Path) -> io.BufferedReader:
    """Open a file for reading. Raises: UnreadableSource for a directory, a missing or an unreadable file."""
    if path.is_dir():
        raise UnreadableSource(f"{path} is a directory; name the trace, export or log file inside it")
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableSource(f"{path} cannot be opened ({reason}); check the path and its permissions") from None


class ByteStream:
    """Pieces of a file, decompressed when it is gzip. Raises: UnreadableSource while iterating over damage."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self._progress = progress
        self._total = 0
        self._done = 0
        self._told = 0.0

    def __iter__(self) -> Iterator[bytes]:
        with open_source(self.path) as file:
            self._total = self.path.stat().st_size
            try:
                yield from self._pieces(file)
            except OSError as error:
                raise UnreadableSource(f"{self.path} cannot be read ({error}); copy it again") from None
        self._tell(force=True)

    def _pieces(self, file: io.BufferedReader) -> Iterator[bytes]:
        head = file.read(PIECE_BYTES)
        if is_gzip(head):
            yield from self._inflate(file, head)
            return
        while head:
            self._done += len(head)
            self._tell()
            yield head
            head = file.read(PIECE_BYTES)

    def _inflate(self, file: io.BufferedReader, piece: bytes) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        try:
            while piece:
                self._done += len(piece)
                self._tell()
                while piece:
                    yield member.decompress(piece, INFLATED_BYTES)
                    piece = member.unconsumed_tail
                    if member.eof:
                        piece = (member.unused_data or file.read(PIECE_BYTES)).lstrip(b"\0")
                        if not is_gzip(piece):
                            return
                        member = zlib.decompressobj(wbits=31)
                piece = file.read(PIECE_BYTES)
        except zlib.error as error:
            raise UnreadableSource(f"{self.path} is a damaged gzip file ({error}); copy or record it again") from None
        if not member.eof:
            raise UnreadableSource(
                f"{self.path} is a truncated gzip file; wait until it is written completely, or copy it again"
            )

    def _tell(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._progress is not None and (force or now - self._told >= _TELL_EVERY_S):
            self._told = now
            self._progress(self._done, self._total)
