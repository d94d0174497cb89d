"""`Spool`: what was taken and not yet delivered, in order, bounded, and there again after a crash.

A window is written to the open segment as soon as it is taken, so a killed agent loses none that it wrote; a sealed
segment is synced to the disk before it is sent, so a power cut costs at most the open one (batch-seconds). What the
disk refuses is kept in memory, within a bound. Beyond a bound the oldest segment is dropped and its windows counted.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import Final

from replaywatch.agent.enrich import Parcel
from replaywatch.agent.ledger import Ledger
from replaywatch.agent.segment import Segment, count_windows, halves, snapshot_lines, window_line
from replaywatch.agent.spool_folder import SpoolFolder, new_key

MAX_SEGMENT_WINDOWS: Final = 500
MAX_SEGMENT_BYTES: Final = 1 << 20
LONG_QUEUE: Final = 12


class OpenSegment:
    """The segment being written. Shape: `path` None once the disk has refused it."""

    def __init__(self, key: str, begun_ns: int, path: Path | None) -> None:
        self.key = key
        self.begun_ns = begun_ns
        self.path = path
        self.snapshots: set[str] = set()
        self.windows = 0
        self.size_bytes = 0
        self.lines: list[bytes] = []
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC) if path is not None else None

    def write(self, data: bytes) -> None:
        """Append whole lines: all or, with an OSError, nothing."""
        if self._file is None:
            self.lines += data.splitlines(keepends=True)
        else:
            try:
                written = os.write(self._file, data)
                if written < len(data):
                    os.write(self._file, data[written:])
            except OSError:
                os.ftruncate(self._file, self.size_bytes)
                raise
        self.size_bytes += len(data)

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Spool:
    """The queue between taking and shipping; thread-safe. `folder` None keeps everything in memory."""

    def __init__(
        self,
        folder: SpoolFolder | None,
        *,
        disk_bytes: int,
        memory_bytes: int,
        ledger: Ledger,
        clock: Callable[[], int],
    ) -> None:
        self._folder = folder
        self._disk_bytes = disk_bytes
        self._memory_bytes = memory_bytes
        self._ledger = ledger
        self._clock = clock
        self._changed = Condition()
        self._open: OpenSegment | None = None
        self._waiting: deque[Segment] = deque(folder.recover() if folder is not None else ())
        self._in_flight: Segment | None = None
        self._unsynced: list[Path] = []
        # Bytes of the sealed segments, by whether they are on disk.
        self._held = {True: sum(s.size_bytes for s in self._waiting), False: 0}

    def append(self, parcel: Parcel) -> None:
        """Take windows, with the snapshots they point to that the open segment does not hold yet."""
        if not parcel.windows:
            return
        with self._changed:
            try:
                segment = self._open or self._begin()
                self._write(segment, parcel)
            except OSError:
                self._ledger.add("replaywatch_agent_spool_errors_total")
                self._seal()
                segment = self._begin(in_memory=True)
                self._write(segment, parcel)
            if segment.windows >= MAX_SEGMENT_WINDOWS or segment.size_bytes >= MAX_SEGMENT_BYTES:
                self._seal()
            self._shed()

    def seal_older(self, age_ns: int) -> None:
        """Seal the open segment when it has reached an age; the age is higher behind a queue, for fewer batches."""
        with self._changed:
            if len(self._waiting) > LONG_QUEUE:
                age_ns *= LONG_QUEUE
            if self._open is not None and not 0 <= self._clock() - self._open.begun_ns < age_ns:
                self._seal()

    def sync(self) -> None:
        """Bring what was sealed since the last call to the disk."""
        with self._changed:
            unsynced, self._unsynced = self._unsynced, []
        if self._folder is not None:
            for path in unsynced:
                self._folder.sync(path)

    def next(self, timeout_s: float) -> Segment | None:
        """The oldest sealed segment, which stays until `done`; waits for one up to a timeout."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(timeout_s)
            self._in_flight = self._waiting[0] if self._waiting else None
            return self._in_flight

    def done(self, segment: Segment) -> None:
        """A segment was delivered."""
        with self._changed:
            self._remove(segment)
            if self._folder is not None and segment.path is not None:
                self._folder.delete(segment.path)

    def reject(self, segment: Segment) -> None:
        """A segment can never be delivered: put it aside, for a person to look at."""
        with self._changed:
            self._remove(segment)
            if self._folder is not None and segment.path is not None:
                self._folder.put_aside(segment.path)

    def split(self, segment: Segment, lines: tuple[bytes, ...]) -> None:
        """Replace a segment by its two halves; their keys follow from its key, so that a crash repeats nothing."""
        parts = [
            Segment(
                key=f"{segment.key}-{n}",
                windows=count_windows(half),
                size_bytes=sum(map(len, half)),
                begun_ns=segment.begun_ns,
                lines=half,
            )
            for n, half in enumerate(halves(lines))
        ]
        with self._changed:
            if self._folder is not None and segment.path is not None:
                parts = self._folder.replace(segment, parts)
            self._remove(segment)
            for part in reversed(parts):
                self._waiting.appendleft(part)
                self._held[part.path is not None] += part.size_bytes

    def wake(self) -> None:
        """End a wait in `next`."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Seal what is open, so that the next start finds it; memory is lost."""
        with self._changed:
            self._seal()
            lost = sum(s.windows for s in self._waiting if s.path is None)
            self._ledger.add("replaywatch_agent_windows_dropped_total", amount=lost)
        if self._folder is not None:
            self._folder.close()

    @property
    def queued_windows(self) -> int:
        """Windows that wait, the open segment's included."""
        with self._changed:
            return sum(s.windows for s in self._waiting) + (self._open.windows if self._open else 0)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk and in memory."""
        with self._changed:
            return sum(s.size_bytes for s in self._waiting) + (self._open.size_bytes if self._open else 0)

    @property
    def oldest_age_s(self) -> float:
        """Age of the oldest segment that waits; 0 when none does."""
        with self._changed:
            first = self._waiting[0].begun_ns if self._waiting else self._open.begun_ns if self._open else None
            return 0.0 if first is None else max(0, self._clock() - first) * 1e-9

    def _begin(self, *, in_memory: bool = False) -> OpenSegment:
        key, begun_ns = new_key(), self._clock()
        path = None
        if self._folder is not None and not in_memory:
            try:
                path = self._folder.create(key, begun_ns)
            except OSError:
                self._ledger.add("replaywatch_agent_spool_errors_total")
        self._open = OpenSegment(key, begun_ns, path)
        return self._open

    @staticmethod
    def _write(segment: OpenSegment, parcel: Parcel) -> None:
        snapshots = dict(snapshot_lines(parcel.fingerprints, parcel.configs))
        missing = [line for name, line in snapshots.items() if name not in segment.snapshots]
        segment.write(b"".join((*missing, *map(window_line, parcel.windows))))
        segment.snapshots.update(snapshots)
        segment.windows += len(parcel.windows)

    def _seal(self) -> None:
        segment, self._open = self._open, None
        if segment is None:
            return
        segment.close()
        path = segment.path
        if path is not None and self._folder is not None:
            path = self._folder.seal(path, keep=segment.windows > 0)
        if not segment.windows:
            return
        sealed = Segment(
            key=segment.key,
            windows=segment.windows,
            size_bytes=segment.size_bytes,
            begun_ns=segment.begun_ns,
            path=path,
            lines=tuple(segment.lines),
        )
        self._waiting.append(sealed)
        self._held[path is not None] += sealed.size_bytes
        if path is not None:
            self._unsynced.append(path)
        self._changed.notify_all()

    def _shed(self) -> None:
        """Drop the oldest segments beyond the bounds, never the one that is being sent."""
        for on_disk, limit_bytes in ((True, self._disk_bytes), (False, self._memory_bytes)):
            for segment in self._oldest(on_disk) if self._held_with_open(on_disk) > limit_bytes else ():
                if self._held_with_open(on_disk) <= limit_bytes:
                    break
                self._remove(segment)
                self._ledger.add("replaywatch_agent_windows_dropped_total", amount=segment.windows)
                if self._folder is not None and segment.path is not None:
                    self._folder.delete(segment.path)

    def _oldest(self, on_disk: bool) -> list[Segment]:
        return [s for s in self._waiting if (s.path is not None) == on_disk and s is not self._in_flight]

    def _held_with_open(self, on_disk: bool) -> int:
        here = self._open is not None and (self._open.path is not None) == on_disk
        return self._held[on_disk] + (self._open.size_bytes if here and self._open is not None else 0)

    def _remove(self, segment: Segment) -> None:
        if segment is self._in_flight:
            self._in_flight = None
        if segment in self._waiting:
            self._waiting.remove(segment)
            self._held[segment.path is not None] -= segment.size_bytes
