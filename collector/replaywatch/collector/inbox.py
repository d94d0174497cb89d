"""Stored batches on their way to the detection thread."""

from __future__ import annotations

from collections import deque
from typing import Final

from replaywatch.collector.ingest import StoredBatch

WAITING_MAX: Final = 4096


class Inbox:
    """A queue between the writing thread and the detection thread; senders are sent away while it is full."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting: deque[StoredBatch] = deque()
        self._waiting_max = waiting_max

    def put(self, stored: StoredBatch) -> None:
        """Hand on a batch that was committed; duplicates go no further."""
        if not stored.is_duplicate:
            self._waiting.append(stored)

    def first(self) -> StoredBatch | None:
        """The oldest waiting batch, which stays until it is dropped; None when there is none."""
        return self._waiting[0] if self._waiting else None

    def drop_first(self) -> None:
        """Let go of the oldest waiting batch."""
        self._waiting.popleft()

    @property
    def waiting(self) -> int:
        """Batches that wait."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether detection lags so far behind that nothing more should be accepted."""
        return len(self._waiting) >= self._waiting_max
