"""A segment of the spool: one batch to be, its key chosen when it is begun, as lines in a file or in memory.

A line is a letter and JSON: ``w`` a window, ``f`` or ``c`` a fingerprint or config with its id before it. A segment
that a crash cut short ends in a line that is not whole; that line is left out and everything before it counts.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window
from replaywatch.contract.wire import WIRE_VERSION, jsonable

GZIP_LEVEL: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One sealed batch that waits. Shape: `path` its file, or `lines` where it is only in memory.

    `found` when an earlier run of the agent left it: a crash may have damaged it.
    """

    key: str
    windows: int
    size_bytes: int
    begun_ns: int
    path: Path | None = None
    lines: tuple[bytes, ...] = ()
    found: bool = False

    def read(self) -> tuple[bytes, ...]:
        """Its whole lines. Raises: OSError when its file is gone."""
        if self.path is None:
            return self.lines
        content = self.path.read_bytes()
        return whole_lines(content) if self.found else tuple(content.splitlines(keepends=True))


def window_line(window: Window) -> bytes:
    """A window as a line."""
    return b"w" + _json(window) + b"\n"


def snapshot_lines(
    fingerprints: Mapping[str, Fingerprint], configs: Mapping[str, EngineConfig]
) -> Iterable[tuple[str, bytes]]:
    """Each snapshot as its id and a line. The id is the content's digest, so it holds no surprises."""
    for fingerprint in fingerprints.values():
        yield f"f{fingerprint.id}", b"f%s %s\n" % (fingerprint.id.encode(), _json(fingerprint))
    for config in configs.values():
        yield f"c{config.id}", b"c%s %s\n" % (config.id.encode(), _json(config))


def whole_lines(content: bytes) -> tuple[bytes, ...]:
    """The lines of a file, without one that a crash cut short or that holds anything else than was written."""
    lines = content.split(b"\n")
    return tuple(line + b"\n" for line in lines[:-1] if _is_whole(line))


def count_windows(lines: Iterable[bytes]) -> int:
    """How many windows some lines hold."""
    return sum(line.startswith(b"w") for line in lines)


def batch_body(key: str, lines: Iterable[bytes], sent_ns: int) -> bytes:
    """The batch that some lines are, in the wire form, compressed."""
    windows = b",".join(line[1:-1] for line in lines if line[:1] == b"w")
    head = json.dumps({"v": WIRE_VERSION, "key": key, "sent_ns": sent_ns}, separators=(",", ":")).encode()
    body = b'%s,"windows":[%s],"fingerprints":{%s},"configs":{%s}}' % (
        head[:-1],
        windows,
        _snapshots(lines, b"f"),
        _snapshots(lines, b"c"),
    )
    return gzip.compress(body, GZIP_LEVEL, mtime=0)


def halves(lines: Iterable[bytes]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Some lines as two batches with half of the windows each, and with all snapshots."""
    windows = [line for line in lines if line.startswith(b"w")]
    rest = [line for line in lines if not line.startswith(b"w")]
    middle = len(windows) // 2
    return (*rest, *windows[:middle]), (*rest, *windows[middle:])


def _snapshots(lines: Iterable[bytes], kind: bytes) -> bytes:
    pairs = (line[1:-1].split(b" ", 1) for line in lines if line[:1] == kind)
    return b",".join(b'"%s":%s' % (key, value) for key, value in pairs)


def _json(value: object) -> bytes:
    return json.dumps(jsonable(value), separators=(",", ":"), allow_nan=False).encode()


def _is_whole(line: bytes) -> bool:
    # Only the shape is looked at: what the disk gave back must not break the batch it becomes part of.
    payload = line[1:] if line[:1] == b"w" else line.partition(b" ")[2] if line[:1] in (b"f", b"c") else b""
    try:
        return isinstance(json.loads(payload), dict)
    except ValueError:
        return False
