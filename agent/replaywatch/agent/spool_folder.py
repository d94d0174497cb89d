"""The spool's folder on disk: file names, syncing, what is found at a start, what is put aside.

Names: ``<begun ns>-<key>.open`` while written, ``.batch`` once sealed; ``rejected/`` holds what the collector refused
for good, at most MAX_REJECTED files. One agent at a time, by a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from replaywatch.agent.segment import Segment, whole_lines
from replaywatch.contract.errors import ConfigurationError

MAX_REJECTED: Final = 16
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{32}(?:-[01]){0,20})\.(open|batch)")


def new_key() -> str:
    """An idempotency key for one batch, 32 hexadecimal digits."""
    return uuid4().hex


class SpoolFolder:
    """A folder that this agent alone uses. Raises: ConfigurationError where it cannot be used or another agent does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rejected = path / "rejected"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"the spool folder {path} cannot be used ({error.strerror}); give one that this user may write "
                "with --spool-dir"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigurationError(f"another agent uses the spool folder {path}; give each its own") from None

    def recover(self) -> list[Segment]:
        """What an earlier agent left, oldest first; its open segment is sealed as far as it is whole.

        Halves whose whole is still there were never sent, so they are deleted: the whole may be taken this time.
        """
        named = [(p, m) for p in sorted(self._path.iterdir()) if (m := _NAME.fullmatch(p.name))]
        keys = {match[2] for _, match in named}
        found = []
        for path, match in named:
            if match[2].rpartition("-")[0] in keys:
                self.delete(path)
            elif segment := self._recovered(path, match):
                found.append(segment)
        return found

    def create(self, key: str, begun_ns: int) -> Path:
        """An empty open segment. Raises: OSError."""
        path = self._path / f"{begun_ns:020}-{key}.open"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return path

    def seal(self, path: Path, *, keep: bool) -> Path:
        """Close an open segment for good, or delete it when it is empty."""
        if not keep:
            self.delete(path)
            return path
        sealed = path.with_suffix(".batch")
        try:
            path.rename(sealed)
        except OSError:  # it is found under its old name, by this run and the next
            return path
        return sealed

    def sync(self, path: Path) -> None:
        """Bring a sealed segment and its name to the disk; a disk that cannot is left to its own."""
        with suppress(OSError):
            for place in (path, self._path):
                handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def replace(self, segment: Segment, parts: list[Segment]) -> list[Segment]:
        """Write the parts of a segment as files and delete it; parts that the disk refuses stay in memory."""
        written = []
        for part in parts:
            path = self._path / f"{segment.begun_ns:020}-{part.key}.batch"
            try:
                path.write_bytes(b"".join(part.lines))
            except OSError:
                path.unlink(missing_ok=True)
                written.append(part)
                continue
            written.append(
                Segment(
                    key=part.key, windows=part.windows, size_bytes=part.size_bytes, begun_ns=part.begun_ns, path=path
                )
            )
        if segment.path is not None:
            self.delete(segment.path)
        return written

    def delete(self, path: Path) -> None:
        """Delete a segment; one that is gone is fine."""
        with suppress(OSError):
            path.unlink()

    def put_aside(self, path: Path) -> None:
        """Move a segment out of the queue, and forget the oldest of those put aside."""
        try:
            self._rejected.mkdir(mode=0o700, exist_ok=True)
            path.rename(self._rejected / path.name)
            for old in sorted(self._rejected.iterdir())[:-MAX_REJECTED]:
                old.unlink()
        except OSError:
            self.delete(path)

    def close(self) -> None:
        """Let another agent use the folder."""
        os.close(self._lock)

    def _recovered(self, path: Path, match: re.Match[str]) -> Segment | None:
        try:
            content = path.read_bytes()
            if match[3] == "open":
                content = b"".join(whole_lines(content))
            if not (windows := content.count(b"\nw") + content.startswith(b"w")):
                path.unlink()
                return None
            sealed = path.with_suffix(".batch")
            path.rename(sealed)
        except OSError:
            return None
        return Segment(
            key=match[2], windows=windows, size_bytes=len(content), begun_ns=int(match[1]), path=sealed, found=True
        )
