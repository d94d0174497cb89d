"""`Sight`: what the probe cannot see and why, what it saw that is not a number, and which faults it met.

Every hook that cannot be placed leaves a blind spot under its own name, so that silence is never taken for health.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

LOGGER = logging.getLogger("replaywatch")
MAX_BLIND = 48
MAX_OBSERVED = 256
MAX_DETAIL = 400


class Sight:
    """Blind spots (kept), observations (counted until taken) and faults (logged once per hook). Thread-safe."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, and make the lock anew."""
        # Its owner may take it again: the collector may run a finalizer under it whose failing call is observed here.
        self._lock = threading.RLock()
        self._blind: dict[str, str] = {}
        self._observed: dict[tuple[str, str, str | None], int] = {}
        self.errors = 0

    def after_fork(self, anew: Collection[str]) -> None:
        """In a forked child: hooks that failed or could not be placed are not there either, all else is the parent's.

        Shape: `anew` the signals whose part starts from nothing. The lock may be held by a thread that is gone.
        """
        kept = {signal: reason for signal, reason in dict(self._blind).items() if signal not in anew}
        self.reset()
        self._blind = kept

    def blind(self, signal: str, reason: str) -> bool:
        """Say that a signal cannot be seen, True where that is new; a later reason replaces an earlier one."""
        with self._lock:
            new = signal not in self._blind
            if not new or len(self._blind) < MAX_BLIND:
                self._blind[signal] = reason[:MAX_DETAIL]
            return new

    def clear(self, signal: str) -> None:
        """Say that a signal can be seen (again)."""
        with self._lock:
            self._blind.pop(signal, None)

    def observe(self, kind: str, detail: str, where: str | None = None, times: int = 1) -> None:
        """Count something that is not a number. Shape: `kind` one of the contract's OBSERVATION_KINDS."""
        key = (kind, detail[:MAX_DETAIL], where)
        with self._lock:
            if key not in self._observed and len(self._observed) >= MAX_OBSERVED:
                key = (kind, "(more, with other details)", None)
            self._observed[key] = self._observed.get(key, 0) + times

    def fault(self, hook: str, error: BaseException) -> None:
        """Record that a hook failed and is off from now on: one log line, one blind spot, one more error."""
        self.errors += 1
        self.blind(hook, f"the hook failed and was switched off: {type(error).__name__}: {str(error)[:160]}")
        LOGGER.warning("replaywatch: %s failed and is off; the process is not affected (%r)", hook, error)

    def blind_spots(self) -> list[dict[str, str]]:
        """All blind spots in the wire form."""
        with self._lock:
            return [{"signal": signal, "reason": reason} for signal, reason in dict(self._blind).items()]

    def take_observations(self) -> list[dict[str, object]]:
        """The observations since the last call, in the wire form."""
        with self._lock:
            observed, self._observed = self._observed, {}
        return [
            {"kind": kind, "detail": detail, "count": count} | ({"where": where} if where else {})
            for (kind, detail, where), count in observed.items()
        ]
