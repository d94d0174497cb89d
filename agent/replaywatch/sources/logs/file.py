"""Reads one log file, plain or gzip."""

from __future__ import annotations

import codecs
import gzip
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from replaywatch.contract.errors import UnreadableSource
from replaywatch.sources.logs.reader import LogReader, unknown
from replaywatch.sources.recording import Progress, Recording

_CHUNK_BYTES = 1 << 20
# A file written to within this time may belong to an engine that is still starting.
_FRESH_NS = 600_000_000_000
# Stamps carry no zone, so "now" can be off by this much.
_ZONES_NS = 15 * 3_600_000_000_000
_GZIP = b"\x1f\x8b"


def read_log(path: str | Path, progress: Progress | None = None, *, now_ns: int | None = None) -> Recording:
    """Everything that an engine's log says about graphs.

    Shape: windows of one minute of log time or more, by data-parallel replica, phase and component where the log
    tells them apart. Steps from SGLang's decode lines are samples, one line one step.

    Raises: UnreadableSource for a file that cannot be read as text, UnknownSource when no line comes from an engine.
    """
    file = Path(path)
    now = time.time_ns() if now_ns is None else now_ns
    try:
        written_ns = file.stat().st_mtime_ns
        if file.is_dir():
            raise UnreadableSource(f"{file} is a directory; give one log file")
        with file.open("rb") as stream:
            reader = _read(stream, file, written_ns, progress)
    except OSError as error:
        raise UnreadableSource(f"{file} cannot be read: {error.strerror or error}") from error
    reader.finish(written_ns, still_written=False)
    if not reader.recognised:
        raise unknown(str(file))
    recording = reader.take()
    if _may_go_on(recording, written_ns, now):
        return _again_as_unfinished(file, written_ns)
    return recording


def _may_go_on(recording: Recording, written_ns: int, now_ns: int) -> bool:
    """Whether an engine that seems to have died in its start-up may simply still be starting."""
    last = max((w.end_ns for w in recording.windows), default=0)
    ended = any(
        o.kind == "process_died" and o.detail.startswith("the log ends inside")
        for w in recording.windows
        for o in w.observations
    )
    return ended and now_ns - written_ns < _FRESH_NS and now_ns - last < _ZONES_NS


def _again_as_unfinished(file: Path, written_ns: int) -> Recording:
    with file.open("rb") as stream:
        reader = _read(stream, file, written_ns, None)
    reader.finish(written_ns, still_written=True)
    return reader.take()


def _read(stream: BinaryIO, file: Path, written_ns: int, progress: Progress | None) -> LogReader:
    reader = LogReader(file.name)
    head = stream.read(4096)
    total = file.stat().st_size
    stream.seek(0)
    decoder = codecs.getincrementaldecoder(_encoding(head, file))(errors="replace")
    try:
        for chunk in _chunks(stream, zipped=head.startswith(_GZIP)):
            reader.feed(decoder.decode(chunk), written_ns)
            if progress is not None:
                progress(min(stream.tell(), total), total)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableSource(f"{file} is a damaged or truncated gzip file ({error}); copy it again") from error
    reader.feed(decoder.decode(b"", final=True), written_ns)
    return reader


def _encoding(head: bytes, file: Path) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head and not head.startswith(_GZIP):
        raise UnreadableSource(f"{file} is a binary file, not a log")
    return "utf-8-sig"


def _chunks(stream: BinaryIO, *, zipped: bool) -> Iterator[bytes]:
    opened = gzip.GzipFile(fileobj=stream) if zipped else stream
    while chunk := opened.read(_CHUNK_BYTES):
        yield chunk
