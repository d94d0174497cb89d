"""The loop: receive, admit, complete, show, spool. All else that takes time has threads of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event
from typing import Final

from replaywatch.agent.admission import Admission, Admitted
from replaywatch.agent.board import Board
from replaywatch.agent.contradiction import Contradictions
from replaywatch.agent.enrich import Enricher, Parcel
from replaywatch.agent.inlet import Frame, Inlet
from replaywatch.agent.ledger import Ledger
from replaywatch.agent.processes import Processes
from replaywatch.agent.spool import Spool
from replaywatch.sources.recording import Recording

TURN_SECONDS: Final = 1.0
CHECK_NS: Final = 10**9
WITNESS: Final = ("witness", 0, None)


@dataclass(slots=True, kw_only=True)
class Loop:
    """The stages, joined. `clock` is monotonic nanoseconds; `spool` None where nothing is shipped."""

    inlet: Inlet
    admission: Admission
    processes: Processes
    enricher: Enricher
    board: Board
    spool: Spool | None
    ledger: Ledger
    from_witnesses: SimpleQueue[Recording]
    contradictions: Contradictions
    batch_ns: int
    clock: Callable[[], int]
    stopping: Event
    turned_ns: int = 0
    checked_ns: int = 0

    def run(self) -> None:
        """Turn until told to stop."""
        while not self.stopping.is_set():
            self.turn(min(TURN_SECONDS, self.batch_ns * 1e-9))

    def turn(self, timeout_s: float) -> None:
        """Take what is there, waiting up to a timeout for the first frame."""
        self.turned_ns = self.clock()
        for frame in self.inlet.frames(timeout_s):
            self.take(frame)
            if self.stopping.is_set() or self.clock() - self.turned_ns > CHECK_NS:
                break
        self._hear_witnesses()
        if self.spool is not None:
            self.spool.seal_older(self.batch_ns)
        if self.clock() - self.checked_ns >= CHECK_NS:
            self._check_lives()

    def take(self, frame: Frame) -> None:
        """One frame's way through the stages."""
        admitted = self.admission.admit(frame, self.clock())
        if not isinstance(admitted, Admitted):
            self.ledger.add("replaywatch_agent_frames_total", admitted)
            return
        parcel = self.enricher.complete(admitted, self.processes.takes_place)
        self.board.add(parcel.windows, admitted.process.key, self.clock())
        self.contradictions.hear_probe(parcel.windows, parcel.configs)
        if self.spool is not None:
            self.spool.append(parcel)
        self.ledger.add("replaywatch_agent_frames_total", "accepted")
        restarts = sum(o.kind == "process_restarted" for w in parcel.windows for o in w.observations)
        self.ledger.add("replaywatch_agent_restarts_total", amount=restarts)

    def _hear_witnesses(self) -> None:
        while not self.from_witnesses.empty():
            recording = self.from_witnesses.get_nowait()
            parcel = self.enricher.complete_recording(recording)
            parcel = with_contradictions(parcel, recording.kind, self.contradictions)
            if not len(self.processes):  # otherwise the same steps would be shown twice
                self.board.add(parcel.windows, WITNESS, self.clock())
            if self.spool is not None:
                self.spool.append(parcel)

    def _check_lives(self) -> None:
        self.checked_ns = self.clock()
        for process in self.processes.gone(self.checked_ns):
            self.board.end(process.key, self.checked_ns)
        self.board.expire(self.checked_ns)


def with_contradictions(parcel: Parcel, witness: str, contradictions: Contradictions) -> Parcel:
    """A witness's windows, those of workloads that probes contradict saying so."""
    found = contradictions.against(witness, parcel.windows)
    windows = tuple(
        replace(window, observations=(*window.observations, one)) if one is not None else window
        for window, one in zip(parcel.windows, found, strict=True)
    )
    return replace(parcel, windows=windows)
