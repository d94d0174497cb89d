"""`read`: one file of any kind becomes a `Recording`; what it is, its content says, never its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal

from replaywatch.contract.errors import SourceError, UnknownSource, UnreadableSource
from replaywatch.sources.bytestream import ByteStream
from replaywatch.sources.measure import measure
from replaywatch.sources.recording import Progress, Recording
from replaywatch.sources.timeline import Timeline

Content = Literal["trace", "nsys", "metrics", "log"]

_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_HEAD_BYTES: Final = 1 << 16
_MOST_METRICS_BYTES: Final = 64 << 20
_METRIC_LINE: Final = re.compile(
    rb"^(?:# (?:HELP|TYPE|UNIT) [a-zA-Z_:]|[a-zA-Z_:][a-zA-Z0-9_:.]*(?:\{[^}\n]*\})? [-+]?(?:[0-9.][0-9.eE+-]*|NaN|Inf)"
    rb"(?: -?[0-9.]+)?\s*$)"
)
_JSON_LIST: Final = re.compile(rb'\[\s*(?:[\[\]{"]|-?\d+(?:\.\d+)?\s*[,\]])')
# Control characters that no text holds; tabs, line ends and the escape of colours are fine.
_UNPRINTABLE: Final = bytes([*range(9), *range(14, 27), *range(28, 32)])
_ARCHIVES: Final = (
    (b"\x28\xb5\x2f\xfd", "zstd -d"),
    (b"PK\x03\x04", "unzip"),
    (b"\xfd7zXZ", "unxz"),
    (b"BZh", "bunzip2"),
    (b"\x04\x22\x4d\x18", "lz4 -d"),
)


def read(path: Path | str, progress: Progress | None = None) -> Recording:
    """Read a trace, an Nsight export, an engine log or a dump of engine metrics.

    Raises: UnreadableSource or UnknownSource, whose text says what is wrong and what to do.
    """
    path = Path(path)
    content = recognise(path)
    if content == "trace":
        return measure(_read_trace(path, progress), "kineto", path.name)
    if content == "nsys":
        from replaywatch.sources.nsys import read_nsys

        return measure(read_nsys(path, progress), "nsys", path.name)
    if content == "metrics":
        from replaywatch.sources.engine_metrics import read_metrics

        return read_metrics(_whole_text(path, progress), path.name)
    from replaywatch.sources.logs import read_log

    return read_log(path, progress)


def _read_trace(path: Path, progress: Progress | None) -> Timeline:
    try:
        from replaywatch.sources.kineto import read_kineto
    except ModuleNotFoundError as error:
        if error.name != "msgspec":
            raise
        raise SourceError(
            f"{path} is a trace, and reading traces needs msgspec; pip install 'replaywatch[analyze]'"
        ) from None
    return read_kineto(path, progress)


def recognise(path: Path) -> Content:
    """What a file holds, by its first bytes.

    Raises: UnreadableSource for nothing to read, UnknownSource for content that no reader takes.
    """
    head = _head(path)
    if head.startswith(_SQLITE_MAGIC):
        return "nsys"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise UnreadableSource(f"{path} is empty; wait until it is written, or name another file")
    for magic, command in _ARCHIVES:
        if head.startswith(magic):
            raise UnknownSource(f"{path} is compressed in a way that is not read here; unpack it first ({command})")
    if _is_binary(head):
        raise UnknownSource(
            f"{path} is a binary file of unknown kind; name a torch.profiler trace, an Nsight SQLite export "
            "(nsys export --type sqlite), an engine log or a metrics dump"
        )
    if _is_json(text):
        return "trace"
    return "metrics" if _is_metrics(text) else "log"


def _head(path: Path) -> bytes:
    parts: list[bytes] = []
    size = 0
    for piece in ByteStream(path):
        parts.append(piece)
        size += len(piece)
        if size >= _HEAD_BYTES:
            break
    return b"".join(parts)[:_HEAD_BYTES]


def _is_binary(head: bytes) -> bool:
    if b"\0" in head:
        return True
    return len(head) - len(head.translate(None, _UNPRINTABLE)) > len(head) // 20


def _is_json(text: bytes) -> bool:
    """Whether text is one JSON document, not log lines that begin with a bracket or are JSON each."""
    if text[:1] == b"[":
        return _JSON_LIST.match(text) is not None
    if text[:1] != b"{":
        return False
    first, newline, rest = text.partition(b"\n")
    one_per_line = first.rstrip().endswith(b"}") and newline and rest.lstrip()[:1] == b"{"
    return b'"traceEvents"' in first or not one_per_line


def _is_metrics(text: bytes) -> bool:
    lines = [line for line in text.split(b"\n")[:200] if line.strip()]
    return bool(lines) and sum(bool(_METRIC_LINE.match(line)) for line in lines) > len(lines) * 0.8


def _whole_text(path: Path, progress: Progress | None) -> str:
    parts: list[bytes] = []
    size = 0
    for piece in ByteStream(path, progress):
        size += len(piece)
        if size > _MOST_METRICS_BYTES:
            raise UnreadableSource(f"{path} is too large for a metrics dump; name one scrape of an engine's /metrics")
        parts.append(piece)
    return b"".join(parts).decode("utf-8", "replace")
