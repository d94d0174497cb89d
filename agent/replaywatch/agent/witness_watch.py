"""The engine's own metrics and log as second witnesses beside the probe, read every few seconds on one thread.

They see what a probe may miss (a process it is not in, what happened before it), and show where it is wrong.
"""

from __future__ import annotations

import logging
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
        self._troubles: dict[str, str] = {}
        self._thread = Thread(target=self._run, name="replaywatch-witness", daemon=True)

    def start(self) -> None:
        """Begin to ask; nothing without witnesses."""
        if self._witnesses:
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop asking; a witness that hangs is left behind."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            for witness in self._witnesses:
                self._ask(witness)
            self._stop.wait(self._period_s)

    def _ask(self, witness: Witness) -> None:
        try:
            recording = witness.read(self._clock())
        except ReplaywatchError as error:
            self._ledger.add(READS, witness.name, "failed")
            if self._troubles.get(witness.name) != str(error):
                log.warning("%s", error)
            self._troubles[witness.name] = str(error)
            return
        self._troubles.pop(witness.name, None)
        self._ledger.add(READS, witness.name, "ok")
        if recording is not None:
            self._tell(recording)
