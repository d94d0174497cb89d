"""`Keeper`: the helper thread. It drains, looks for hangs, traces now and then and sends a window every few seconds."""

from __future__ import annotations

import threading
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import TYPE_CHECKING

from replaywatch.probe import workload
from replaywatch.probe.budget import cost_of_call_ns
from replaywatch.probe.emission import Emitter
from replaywatch.probe.patching import Switch
from replaywatch.probe.sight import LOGGER

if TYPE_CHECKING:
    from replaywatch.probe.session import Session

TICK_S = 0.25
IDLE_TICK_S = 1.0
LOOK_NS = 1_000_000_000
MAX_FAULTS = 5


class Keeper:
    """One per process and session; begins at most once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._emitter = Emitter(session)
        self._looked_ns = 0
        self._finished = False
        self._faults = 0

    @property
    def alive(self) -> bool:
        """Whether the thread was begun (or the keeper is done)."""
        return self._thread is not None or self._finished

    def begin(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if self.alive:
                return
            self._emitter.start_ns = time_ns()
            thread = threading.Thread(target=self._run, name="replaywatch", daemon=True)
            self._thread = thread
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down, or out of threads
            LOGGER.debug("replaywatch: no helper thread could be started")

    def finish(self, timeout_s: float) -> None:
        """End the thread and send what was counted last; waits no longer than the timeout for the thread."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
            thread = self._thread
        self._stop.set()
        if thread is None:
            return
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout_s)
            if thread.is_alive():
                return
        self._emitter.emit(time_ns(), leaving=True)

    def _run(self) -> None:
        session = self._session
        try:
            session.budget.calibrate(self._hook_cost)
            while not self._stop.wait(self._tick_s()) and self._faults < MAX_FAULTS:
                self._guarded_turn()
        except Exception as error:  # the probe's border
            session.sight.fault("the helper thread", error)

    def _guarded_turn(self) -> None:
        try:
            self._turn()
        except Exception as error:  # the probe's border: one bad turn is not the end, many are
            self._faults += 1
            if self._faults == 1:
                self._session.sight.fault("the helper thread", error)
            else:
                self._session.sight.errors += 1

    def _tick_s(self) -> float:
        tick = TICK_S if self._emitter.replayed else IDLE_TICK_S
        return min(tick, self._session.settings.window_seconds / 2) * min(4, self._session.budget.stretch)

    def _turn(self) -> None:
        session = self._session
        now_ns = perf_counter_ns()
        session.ledger.drain()
        session.timer.poll(now_ns)
        if now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            session.stuck.look(now_ns)
        if workload.cuda_ready():
            session.tracing.work_began(now_ns)
            if session.tracing.due(now_ns):
                session.tracing.run(now_ns, session.budget.stretch)
        self._emitter.cpu_ns = thread_time_ns()
        now = time_ns()
        if now - self._emitter.start_ns >= session.settings.window_seconds * 1e9:
            self._emitter.emit(now)

    def _hook_cost(self) -> float:
        session = self._session

        class Nothing:
            def replay(self) -> None:
                pass

        subject = Nothing()
        bare = Nothing.replay
        wrapped = session.graph_patches.practice(bare, Switch())
        return cost_of_call_ns(wrapped, bare, subject)  # type: ignore[arg-type]
