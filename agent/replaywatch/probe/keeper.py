"""`Keeper`: the helper thread. It drains, looks for hangs, traces now and then and sends a window every few seconds."""

from __future__ import annotations

import os
import threading
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import TYPE_CHECKING, Any

from replaywatch.probe import snapshots, windows, workload
from replaywatch.probe.budget import cost_of_call_ns
from replaywatch.probe.patching import Switch
from replaywatch.probe.sight import LOGGER

if TYPE_CHECKING:
    from replaywatch.probe.session import Session

TICK_S = 0.25
IDLE_TICK_S = 1.0
LOOK_NS = 1_000_000_000
MAX_FAULTS = 5
# How often snapshots are sent again, for an agent that was restarted.
REPEAT_SNAPSHOTS = 60


class Keeper:
    """One per process and session; begins at most once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._number = 0
        self._start_ns = time_ns()
        self._cpu_ns = 0
        self._cpu_seen_ns = 0
        self._errors = 0
        self._sent = 0
        self._dropped = 0
        self._looked_ns = 0
        self._replayed = False
        self._last_replays = 0
        self._snapshots: tuple[str, str] | None = None
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
            self._start_ns = time_ns()
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
        self._emit(time_ns(), leaving=True)

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
        tick = TICK_S if self._replayed else IDLE_TICK_S
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
        self._cpu_ns = thread_time_ns()
        now = time_ns()
        if now - self._start_ns >= session.settings.window_seconds * 1e9:
            self._emit(now)

    def _hook_cost(self) -> float:
        session = self._session

        class Nothing:
            def replay(self) -> None:
                pass

        subject = Nothing()
        bare = Nothing.replay
        wrapped = session.graph_patches.practice(bare, Switch())
        return cost_of_call_ns(wrapped, bare, subject)  # type: ignore[arg-type]

    def _emit(self, now: int, leaving: bool = False) -> None:
        """Take all counts and send them as one window per workload."""
        session = self._session
        if session.port is not None:
            session.port.flush()
        if not (
            session.ledger.ever
            or workload.cuda_ready()
            or session.inductor.compile_modes
            or session.steps.any()
            or session.compiled.any()
        ):
            self._start_ns = now
            return
        session.inductor.poll_counters()
        self._notice_overwritten()
        dispatch, timing, memory = session.ledger.take()
        timing |= {
            name: tally
            for name, tally in (("replay", session.timer.replay.take()), ("replay_gap", session.timer.gap.take()))
            if tally is not None
        }
        timed = timing.get("replay", {}).get("n", 0)
        results, traced_windows, traced_ns = session.tracing.take()
        traced, traced_timing = windows.merge_traced(results)
        windows.add_traced_timing(timing, traced_timing)
        self._after_first_replays(dispatch["replays"])
        cost = self._cost(dispatch["replays"], timed, traced_windows, traced_ns, now)
        steps = session.steps.take()
        times = session.port.clock.take() if session.port is not None else {}
        # Where an engine says what its steps are, calls of compiled functions are parts of them and no steps.
        compiled = session.compiled.take()
        base = windows.merge_dispatch(dispatch, (steps or compiled).pop((None, None), {}))
        windows.add_histograms(timing, times.pop((None, None), {}))
        fingerprint, config = self._take_snapshots()
        common: dict[str, Any] = {"fingerprint_id": fingerprint[0], "config_id": config[0]}
        self._send(
            windows.window(
                self._who(), self._start_ns, now, base, timing,
                traced=traced, memory=memory, cost=cost, blind=session.sight.blind_spots(),
                observations=session.sight.take_observations(), **common,
            ),
            fingerprint, config,
        )  # fmt: skip
        for component, phase in sorted({*steps, *times}, key=str):
            dispatch, timing = steps.get((component, phase), {}), times.get((component, phase), {})
            who = self._who(component, phase)
            self._send(windows.window(who, self._start_ns, now, dispatch, timing, **common), None, None)
        if not leaving:
            session.outlet.flush()
        self._start_ns = now

    def _who(self, component: str | None = None, phase: str | None = None) -> dict[str, Any]:
        who = workload.describe(self._session.settings, component, phase, self._session.ledger.device)
        for adapter in self._session.adapters:
            who |= adapter.workload()
        return who

    def _cost(self, replays: int, timed: int, traced_windows: int, traced_ns: int, now: int) -> dict[str, Any]:
        session = self._session
        cpu_ns, self._cpu_seen_ns = self._cpu_ns - self._cpu_seen_ns, self._cpu_ns
        spent_ns = session.budget.spent_ns(replays, cpu_ns, timed, traced_ns)
        session.budget.settle(spent_ns, now - self._start_ns)
        one_in = session.settings.time_one_in
        session.recorders.set_sampling(one_in * session.budget.stretch)
        sent, dropped, errors = session.outlet.sent, session.outlet.dropped, session.sight.errors
        cost = {
            "hook_ns": int(replays * session.budget.hook_ns),
            "hook_calls": replays,
            "helper_cpu_ns": cpu_ns,
            "traced_windows": traced_windows,
            "traced_ns": traced_ns,
            "frames_sent": sent - self._sent,
            "frames_dropped": dropped - self._dropped,
            "throttled": session.budget.take_throttled(),
            "errors": errors - self._errors,
        }
        self._sent, self._dropped, self._errors = sent, dropped, errors
        return cost

    def _after_first_replays(self, replays: int) -> None:
        self._replayed = bool(replays)
        if replays and not self._last_replays:
            self._session.tracing.again(perf_counter_ns())
        self._last_replays += replays

    def _notice_overwritten(self) -> None:
        for signal in self._session.patches.overwritten():
            self._session.sight.blind(signal, "another tool put its own function over the probe's")

    def _take_snapshots(self) -> tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]:
        session = self._session
        extra: dict[str, Any] = {}
        for adapter in session.adapters:
            extra |= adapter.config()
        fingerprint = snapshots.fingerprint(session.settings.model_name, session.ledger.device)
        config = snapshots.config(session.inductor.take_modes(), extra)
        return (
            (snapshots.digest(snapshots.FINGERPRINT_FIELDS, fingerprint), fingerprint),
            (snapshots.digest(snapshots.CONFIG_FIELDS, config), config),
        )

    def _send(
        self,
        window: dict[str, Any],
        fingerprint: tuple[str, dict[str, Any]] | None,
        config: tuple[str, dict[str, Any]] | None,
    ) -> None:
        self._number += 1
        key = f"{os.getpid()}-{self._started():x}-{self._number}"
        new = fingerprint is not None and config is not None and (
            self._snapshots != (fingerprint[0], config[0]) or self._number % REPEAT_SNAPSHOTS == 0
        )  # fmt: skip
        frame = windows.frame(
            key, time_ns(), window,
            {fingerprint[0]: fingerprint[1]} if new and fingerprint else None,
            {config[0]: config[1]} if new and config else None,
        )  # fmt: skip
        self._session.outlet.send(frame)
        if new and fingerprint and config:
            self._snapshots = (fingerprint[0], config[0])

    def _started(self) -> int:
        """Tells two processes of the same number apart."""
        if not hasattr(self, "_first_ns"):
            self._first_ns = self._start_ns
        return self._first_ns
