"""`Keeper`: the helper thread. It drains, looks for hangs, traces now and then and sends a window every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import TYPE_CHECKING

from replaywatch.probe import workload
from replaywatch.probe.budget import cost_of_call_ns
from replaywatch.probe.emission import Emitter
from replaywatch.probe.sight import LOGGER

if TYPE_CHECKING:
    from replaywatch.probe.session import Session

TICK_S = 0.25
IDLE_TICK_S = 1.0
LOOK_NS = 1_000_000_000
BREATH_S = 0.0002
# Bad turns in a row: five to twenty seconds without a good one.
MAX_FAULTS = 20
SIGNAL = "helper thread"


class Keeper:
    """One per process and session; begins at most once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._emitter = Emitter(session)
        self._looked_ns = 0
        self._finished = False
        self._faults = 0
        self._judges = False

    @property
    def alive(self) -> bool:
        """Whether the thread was begun (or the keeper is done)."""
        return self._thread is not None or self._finished

    def begin(self) -> None:
        """Start the thread, once."""
        # Made before it is decided who starts: a finalizer that the collector runs meanwhile may begin a thread too.
        now, thread = time_ns(), threading.Thread(target=self._run, name="replaywatch", daemon=True)
        with self._lock:
            if self.alive:
                return
            self._thread = thread
            self._emitter.start_ns = now
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
        try:
            self._guarded(self._calibrate)
            while self._faults < MAX_FAULTS:
                if self._stop.wait(self._tick_s()):
                    return
                self._guarded(self._turn)
            self._give_up()
        except Exception as error:  # the probe's border
            self._session.sight.fault("the helper thread", error)

    def _guarded(self, act: Callable[[], None]) -> None:
        """One bad turn is not the end, many in a row are."""
        sight = self._session.sight
        try:
            act()
            self._faults = 0
        except Exception as error:  # the probe's border
            if not sight.errors:
                LOGGER.warning("replaywatch: the helper thread failed; the process is not affected (%r)", error)
            self._faults += 1
            sight.errors += 1
            what = f"{type(error).__name__}: {str(error)[:160]}"
            sight.blind(SIGNAL, f"a turn of the helper thread failed; this window may lack what it takes ({what})")

    def _give_up(self) -> None:
        """Take all hooks off, and let the last window say so: nobody would take what they count any more."""
        session = self._session
        with self._lock:
            if self._finished:
                return
            self._finished = True
        LOGGER.warning("replaywatch: the helper thread failed %d times in a row; the probe ends", MAX_FAULTS)
        session.sight.blind("probe", f"the helper thread failed {MAX_FAULTS} times in a row; all hooks were taken off")
        try:
            self._emitter.say_the_end(time_ns())
        finally:
            session.end()

    def _tick_s(self) -> float:
        most_s = self._session.settings.window_seconds / 2
        if self._judges:  # else the stepping threads would have to, and slower
            return min(TICK_S, most_s)
        tick = TICK_S if self._emitter.replayed else IDLE_TICK_S
        return min(tick, most_s) * min(4, self._session.budget.stretch)

    def _turn(self) -> None:
        session = self._session
        now_ns = perf_counter_ns()
        begin_ns = thread_time_ns()
        worked = [port.work_off(breath_s=BREATH_S) for port in session.ports()]
        self._judges = any(worked)
        self._emitter.judging_ns += thread_time_ns() - begin_ns
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
            session.sight.clear(SIGNAL)

    def _calibrate(self) -> None:
        class Nothing:
            def replay(self) -> None:
                pass

        budget, practice, bare = self._session.budget, self._session.graph_patches.practice, Nothing.replay
        budget.replay_ns = cost_of_call_ns(practice(bare), bare, Nothing())  # type: ignore[arg-type]
        budget.count_ns = cost_of_call_ns(practice(bare, count_only=True), bare, Nothing())  # type: ignore[arg-type]
