"""`Session`: everything the probe is made of in one process, and `start` and `stop`.

The helper thread begins with the first thing worth seeing (CUDA starts, a graph is captured, an engine's adapter
speaks), so that the many small Python processes of a job carry none. A forked child starts from nothing. Leaving the
process sends what was counted, within a bounded time.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from replaywatch.probe import keeper, placing, replay_timing, stuck, tracing
from replaywatch.probe.budget import Budget
from replaywatch.probe.cudagraph_trees import TreeHooks
from replaywatch.probe.graph_nodes import NodeCounter
from replaywatch.probe.graph_patches import GraphPatches
from replaywatch.probe.imports import ImportWatch
from replaywatch.probe.inductor import InductorHooks
from replaywatch.probe.keeper import Keeper
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.official_hooks import OfficialHooks
from replaywatch.probe.outlet import Outlet
from replaywatch.probe.patching import PatchSet
from replaywatch.probe.profiler_guard import ProfilerGuard
from replaywatch.probe.replay_timing import ReplayTimer
from replaywatch.probe.settings import Settings, settle
from replaywatch.probe.sight import LOGGER, Sight
from replaywatch.probe.slots import Recorders
from replaywatch.probe.steps import Adapter, StepLedger, checked_context, checked_step
from replaywatch.probe.stuck import StuckWatch
from replaywatch.probe.tracing import Tracing, load_tracer

if TYPE_CHECKING:
    from replaywatch.probe.engines.port import Port

EXIT_S = 0.5
MAX_BYTES = 1 << 62  # a window holds integers of 64 bits
OWN_STEPS = "steps of record_step"
# What a forked child cannot see is for its own parts to say.
ANEW = (
    keeper.SIGNAL,
    replay_timing.SIGNAL,
    stuck.SIGNAL,
    tracing.SIGNAL,
    tracing.GRAPH_SIGNAL,
    "launch costs",
    OWN_STEPS,
)


class Session:
    """One probe in one process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sight = Sight()
        self.patches = PatchSet(self.sight)
        self.imports = ImportWatch(self.sight)
        self.recorders = Recorders(settings.time_one_in, self.wake)
        self.ledger = GraphLedger(self.sight, self.recorders, self.wake)
        self.timer = ReplayTimer(self.ledger, self.sight, settings.hang_seconds)
        self.stuck = StuckWatch(self.ledger, self.sight, settings.hang_seconds)
        self.graph_patches = GraphPatches(self.ledger, self.timer, self.sight, NodeCounter(self.sight))
        self.official = OfficialHooks(self.ledger, self.timer, self.sight)
        self.tracing = Tracing(settings, self.sight, load_tracer, lambda: bool(self.ledger.capturing))
        self.steps = StepLedger(self.tracing.mark)
        self.compiled = StepLedger()
        self.inductor = InductorHooks(self.sight, self.wake)
        self.trees = TreeHooks(self.sight, self.compiled, self.wake)
        self.guard = ProfilerGuard(self.tracing, self.sight)
        self.budget = Budget(settings.budget_ratio)
        self.outlet = Outlet(settings.socket)
        self.adapters: list[Adapter] = []
        self.attaching = threading.Lock()  # taken for good by the thread that attaches the adapters
        self.port: Port | None = None  # of the engines' adapters
        self.own: Port | None = None  # of `record_step`
        self.model: dict[str, Any] = {}  # fields of EngineConfig, of `describe_model`
        self.running = False
        self.keeper = Keeper(self)

    def begin(self) -> None:
        """Place the hooks that can be placed now, and watch for the modules of the others."""
        self.running = True
        for problem in self.settings.problems:
            LOGGER.warning("replaywatch: %s", problem)
        placing.watch(self)
        self.imports.start()
        atexit.register(self.at_exit)

    def end(self) -> None:
        """Take the hooks off, send the last window, end the helper thread."""
        if not self.running:
            return
        self.running = False
        self.imports.stop()
        for adapter in self.adapters:
            adapter.remove()
        self.official.remove()
        self.patches.remove()
        self.keeper.finish(EXIT_S)
        self.ledger.let_go()
        self.tracing.close()
        self.outlet.close()
        atexit.unregister(self.at_exit)

    def ports(self) -> list[Port]:
        """Where steps are counted and timed on their way to the ledger."""
        return [port for port in (self.port, self.own) if port is not None]

    def record_step(self, mode: str, **about: Any) -> None:
        """Count and time a step of a loop that no adapter knows. Shape: as `StepLedger.record`.

        What a window cannot hold is not counted, which is said once in the log and in every window.
        """
        try:
            context = checked_context(about.pop("context_tokens", None))
            step = checked_step(mode, **about)
        except (TypeError, ValueError) as error:
            if self.sight.blind(OWN_STEPS, f"steps are not counted: {error}"):
                LOGGER.warning("replaywatch: record_step: a step was not counted (%s)", error)
            return
        port = self.own or self._own_port()
        port.step(*step)
        _, batch, _, _, _, phase, component = step
        if context and batch and phase in (None, "decode") and component in (None, "target"):
            port.context(context, batch)

    def describe_model(self, model: Any, **sizes: int | None) -> None:
        """Keep the sizes of a model that no adapter knows. Shape: as `replaywatch.probe.describe_model`."""
        from replaywatch.probe.engines.model_size import model_size

        counted = {} if model is None else model_size(model, getattr(model, "config", None))
        given = {name: int(size) for name, size in sizes.items() if size is not None and 0 < size < MAX_BYTES}
        self.model = {**counted, **given}

    def _own_port(self) -> Port:
        from replaywatch.probe.engines.port import Port

        with _lock:  # of two threads' first steps neither may be lost
            if self.own is None:
                self.own = Port(self.sight, self.imports, self.steps, self.ledger, wake=self.wake)
            return self.own

    def practice_step(self) -> Callable[[object], object]:
        """A step like those that are told here, into ledgers of its own: what the helper measures its cost with."""
        ledger, ports = StepLedger(), self.ports()
        if not ports:  # steps of compiled functions only
            return lambda _: ledger.record("full")
        port = type(ports[0])(Sight(), self.imports, ledger, self.ledger)
        return lambda _: port.step(*checked_step("full", 1, 1, 1))

    def wake(self) -> None:
        """Something happened that is worth a window: make sure the helper thread runs."""
        if self.running and not self.keeper.alive:
            self.keeper.begin()

    def at_exit(self) -> None:
        """Send the last window, in bounded time; never raises."""
        try:
            if self.running:
                self.keeper.finish(EXIT_S)
        except Exception as error:  # the probe's border
            LOGGER.debug("replaywatch: the last window was not sent (%r)", error)

    def after_fork(self) -> None:
        """In a forked child: no thread, no socket, no graph and no lock of the parent is of use."""
        if not self.running:
            return
        _never_destroy(self.timer.handles())
        self.sight.after_fork(ANEW)
        for patches in (self.patches, *(adapter.patches for adapter in self.adapters)):
            patches.renew_lock()
        self.recorders.forget()
        self.ledger.reset()
        self.timer.reset()
        self.steps.reset()
        self.compiled.reset()
        self.inductor.after_fork()
        self.trees.reset()
        self.tracing.reset()
        self.guard.reset()
        if self.port is None and self.attaching.locked():
            # Imports that the thread had begun stay locked, so none is tried here.
            self.sight.blind("engine adapters", "the process forked while another thread loaded them")
        for port in self.ports():
            port.forget()
        self.outlet.close()
        self.outlet = Outlet(self.settings.socket)
        self.keeper = Keeper(self)


def _never_destroy(handles: list[object]) -> None:
    """Keep a parent's CUDA events for good: destroying one in a forked child ends the child.

    Found by the soak on an H200, torch 2.11: an event's destructor throws there (initialization error) and aborts.
    """
    if handles:
        import ctypes

        for handle in handles:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


_lock = threading.Lock()
_session: Session | None = None


def start(**options: object) -> bool:
    """Start the probe in this process; True when it runs. Never raises. Options: see `settings.TABLE`.

    A second call changes nothing. What could not be hooked is reported in the windows, by name.
    """
    global _session
    begin_ns = perf_counter_ns()
    try:
        with _lock:
            if current() is None:
                session = Session(settle(_given(options)))
                session.begin()
                _session = session
                LOGGER.debug("replaywatch: probe started in %.1f ms", (perf_counter_ns() - begin_ns) / 1e6)
        return True
    except Exception as error:  # the probe's border
        LOGGER.warning("replaywatch: the probe could not start; the process is not affected (%r)", error)
        return False


def stop() -> None:
    """Take all hooks off and send the last window. Never raises."""
    global _session
    try:
        with _lock:
            session, _session = _session, None
        if session is not None:
            session.end()
    except Exception as error:  # the probe's border
        LOGGER.warning("replaywatch: the probe did not stop cleanly (%r)", error)


def current() -> Session | None:
    """The running session, else None."""
    session = _session
    return session if session is not None and session.running else None


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _session is not None:
        _session.after_fork()


os.register_at_fork(after_in_child=_after_fork)
