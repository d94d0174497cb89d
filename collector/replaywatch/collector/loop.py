"""A thread that does one thing again and again, can be woken, and says how it fares."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from replaywatch.contract.errors import StoreError

LOG = logging.getLogger("replaywatch.collector")


class Loop:
    """Runs an action every so many seconds, or sooner when woken, until stopped.

    A store that fails is told in the log, and tried again at the next turn; any other fault ends the thread, which
    liveness then reports.
    """

    def __init__(self, name: str, every_seconds: float, action: Callable[[], object]) -> None:
        self._name = name
        self._every_seconds = every_seconds
        self._action = action
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"replaywatch-{name}", daemon=True)
        self.trouble: str | None = None

    def start(self) -> None:
        """Start turning."""
        self._thread.start()

    def wake(self) -> None:
        """Take the next turn now."""
        self._wake.set()

    def stop(self, timeout_seconds: float = 1.0) -> None:
        """End after the present turn."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    @property
    def is_alive(self) -> bool:
        """Whether the thread turns."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._turn()
            self._wake.wait(self._every_seconds)
            self._wake.clear()

    def _turn(self) -> None:
        try:
            self._action()
        except StoreError as error:
            if self.trouble is None and not self._stopping.is_set():
                LOG.error("%s waits for the store: %s", self._name, error)
            self.trouble = str(error)
        else:
            self.trouble = None
