"""The engine's own metrics and log as second witnesses beside the probe, read every few seconds, each on its thread.

They see what a probe may miss (a process it is not in, what happened before it), and show where it is wrong.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final, Protocol

from replaywatch.agent.ledger import Ledger
from replaywatch.contract.errors import ReplaywatchError
from replaywatch.sources.recording import Recording

log = logging.getLogger("replaywatch.agent")
READS: Final = "replaywatch_agent_witness_reads_total"


class Witness(Protocol):
    """Somebody to ask. `name` is the label in the metrics."""

    name: str

    def read(self, now_ns: int) -> Recording | None:
        """What it has seen since the last time; None when that is nothing. Raises: ReplaywatchError."""

    def close(self) -> None:
        """Let go of what is held between two readings."""


class WitnessWatch:
    """Asks the witnesses and hands on what they say."""

    def __init__(
        self,
        witnesses: Sequence[Witness],
        period_s: float,
        ledger: Ledger,
        clock: Callable[[], int],
        tell: Callable[[Recording], None],
    ) -> None:
        self._witnesses = witnesses
        self._period_s = period_s
        self._ledger = ledger
        self._clock = clock
        self._tell = tell
        self._stop = Event()
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Begin to ask; nothing without witnesses. Each has a thread of its own: one that hangs delays no other."""
        self._threads = [
            Thread(target=self._run, args=(witness,), name=f"replaywatch-{witness.name}", daemon=True)
            for witness in self._witnesses
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop asking; a witness that hangs is left behind."""
        self._stop.set()
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self, witness: Witness) -> None:
        trouble: str | None = None
        while not self._stop.is_set():
            trouble = self._ask(witness, trouble)
            self._stop.wait(self._period_s)
        witness.close()

    def _ask(self, witness: Witness, before: str | None) -> str | None:
        """Ask once; returns what went wrong, which is logged where it is not what went wrong before."""
        try:
            recording = witness.read(self._clock())
        except Exception as error:  # a border: what others wrote is read here, and must not end the reading
            self._ledger.add(READS, witness.name, "failed")
            expected = isinstance(error, ReplaywatchError)
            trouble = str(error) if expected else f"the witness {witness.name} cannot be read ({error!r})"
            if trouble != before:
                log.warning("%s", trouble, exc_info=None if expected else error)
            return trouble
        self._ledger.add(READS, witness.name, "ok")
        if recording is not None:
            self._tell(recording)
        return None
