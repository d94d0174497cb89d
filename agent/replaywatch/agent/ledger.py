"""`Ledger`: the agent's counts of itself, shared by its threads: what came, what was sent, what was lost."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final

# Label values that exist from the start, so that a rate over them is right from the first event on.
KNOWN: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "replaywatch_agent_frames_total": tuple(
        (o,) for o in ("accepted", "malformed", "other_version", "truncated", "duplicate", "limited", "foreign_user")
    ),
    "replaywatch_agent_batches_total": (("delivered",), ("rejected",), ("split",)),
    "replaywatch_agent_retries_total": tuple(
        (r,) for r in ("unreachable", "timeout", "throttled", "server_error", "unauthorized", "misaddressed", "version")
    ),
    "replaywatch_agent_device_reads_total": (("ok",), ("blind",)),
    "replaywatch_agent_witness_reads_total": tuple(
        (witness, outcome) for witness in ("metrics", "log") for outcome in ("ok", "failed")
    ),
}


class Ledger:
    """Counts by metric name and label values; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[tuple[str, tuple[str, ...]], float] = {
            (name, labels): 0.0 for name, known in KNOWN.items() for labels in known
        }

    def add(self, name: str, *labels: str, amount: float = 1) -> None:
        """Count something. `name` is a row of the catalogue, `labels` its label values in order."""
        with self._lock:
            self._counts[name, labels] = self._counts.get((name, labels), 0.0) + amount

    def value(self, name: str, *labels: str) -> float:
        """What was counted under a name and labels so far."""
        with self._lock:
            return self._counts.get((name, labels), 0.0)

    def rows(self, name: str) -> list[tuple[tuple[str, ...], float]]:
        """Every label set of a name with its count."""
        with self._lock:
            return [(labels, count) for (n, labels), count in self._counts.items() if n == name]
