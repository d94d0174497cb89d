"""`Port`: all that an engine adapter may touch of the probe; and `EngineAdapter`, what every adapter has in common."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns, sleep
from types import ModuleType
from typing import Any, ClassVar, Protocol

from replaywatch.probe.engines.step_clock import Pace, StepClock
from replaywatch.probe.imports import ImportWatch
from replaywatch.probe.patching import PatchSet, Switch, loaded
from replaywatch.probe.sight import Sight

MAX_CELLS = 4096
# One decode step in so many tells how long its sequences are.
CONTEXT_ONE_IN = 32
# One step in so many measures what telling it took; a prime, since steps of several kinds may take turns.
MEASURED_ONE_IN = 31
# What waits for the helper thread at most; of a longer queue the stepping thread works off a few itself.
MAX_WAITING = 512
MOST_WAITING = 32 * MAX_WAITING
SIGNAL = "engine steps"
LOST = "steps came faster than they could be judged; some were not counted"
# Steps that are judged in one go where another thread waits for the interpreter: 0.1 ms at most.
FEW = 16
# Seconds that a window waits for another thread that works off the queue.
PATIENCE_S = 1.0


class Throwaway(Protocol):
    """Labels captures that are made to be thrown away; the graph ledger."""

    def enter_throwaway(self) -> None:
        """Captures that begin on this thread from now on are labelled throw-away."""

    def leave_throwaway(self) -> None:
        """End what `enter_throwaway` began."""


class Ledger(Protocol):
    """Counts steps; the session's `StepLedger`."""

    def mark(self, mode: str) -> None:
        """Say that a step of this mode runs now."""

    def add(self, times: int, *step: Any) -> None:
        """Count equal steps at once."""

    def add_contexts(self, tokens: int, sequences: int) -> None:
        """Take the context of decode steps of the main model: tokens over all their sequences."""


class Cell:
    """Steps that were equal in all that is told of them. `count` only grows; `told` is what the ledger knows of."""

    __slots__ = ("count", "pace", "step", "told")

    def __init__(self, step: tuple[Any, ...], pace: Pace) -> None:
        self.step, self.pace = step, pace
        self.count = 0
        self.told = 0


class Port:
    """The probe as adapters see it.

    `captures` labels throw-away captures, `clock` times steps by mode and planning on the host, `replays_here` counts
    the replays of the calling thread so far, `wake` is called with the first step, `loop_works` says whether a loop of
    the user's own has counted a step, `traced` holds something while steps must be marked at the moment they happen.
    """

    __slots__ = (
        "_cells", "_context", "_context_in", "_context_told", "_ledger", "_measured_in", "_took", "_traced", "_turn",
        "_waiting", "captures", "clock", "imports", "loop_works", "replays_here", "sight", "wake",
    )  # fmt: skip

    def __init__(
        self,
        sight: Sight,
        imports: ImportWatch,
        ledger: Ledger,
        captures: Throwaway,
        replays_here: Callable[[], int] = lambda: 0,
        wake: Callable[[], None] = lambda: None,
        clock: StepClock | None = None,
        loop_works: Callable[[], bool] = lambda: False,
        traced: list[bool] | None = None,
    ) -> None:
        self.sight, self.imports, self.captures = sight, imports, captures
        self.replays_here, self.wake = replays_here, wake
        self.clock, self.loop_works = clock or StepClock(), loop_works
        self._ledger = ledger
        self._traced: list[bool] = [] if traced is None else traced
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._turn = threading.Lock()
        self._took = (0, 0)
        self._measured_in = MEASURED_ONE_IN - 1
        self._cells: dict[tuple[Any, ...], Cell] = {}
        self._context_in = 0
        self._context = self._context_told = (0, 0)

    def step(
        self,
        mode: str,
        batch: int | None = None,
        real_tokens: int | None = None,
        padded_tokens: int | None = None,
        reason: str | None = None,
        phase: str | None = None,
        component: str | None = None,
        *,
        asked_ns: int = 0,
        at_ns: int = 0,
    ) -> None:
        """Count one step, and time it against the step before. Shape: as `StepLedger.record`.

        `asked_ns`: perf_counter_ns when the step was dispatched, where this is told after its forward; `at_ns` when it
        was done, where this is told later (`later`).

        On the engine's step path: equal steps meet in one cell, and the ledger is told at the end of the window.
        Decode steps of the main model are what the process does: they carry no label, so that they share a window with
        its graphs, kernels and memory. Prefill, mixed batches and other models become windows of their own.
        """
        begin_ns = 0
        if not at_ns:  # on the step path: now and then it says what it took there
            turn = self._measured_in
            self._measured_in = turn - 1 if turn else MEASURED_ONE_IN - 1
            if not turn:
                begin_ns = perf_counter_ns()
        step = (mode, batch, real_tokens, padded_tokens, reason, phase, component)
        cell = self._cells.get(step)
        if cell is None:
            cell = self._new_cell(step)
        cell.count += 1
        self._ledger.mark(mode)
        self.clock.step(cell.pace, asked_ns, at_ns)
        if begin_ns:
            self.took(perf_counter_ns() - begin_ns)

    def later(self, act: Callable[..., None], *about: Any) -> None:
        """Let the helper thread make something of a step, in the order in which they came. `act` may not raise.

        On the engine's step path. Between two steps an engine does so much else that a hook finds the processor's
        caches cold: judging a step there took 20 to 30 us, where it takes 4 to 6 in a loop, as on the helper thread
        (tests/probe/engines/bench_hooks.py). So a hook keeps what there is to know, nothing that is large or that is
        the engine's own, and leaves the rest.
        """
        waiting = self._waiting
        waiting.append((act, about))
        if self._traced:
            self.work_off()
        elif len(waiting) >= MAX_WAITING:
            self.work_off(most=FEW)
            if len(waiting) >= MOST_WAITING:  # whoever works it off has stood still for many steps
                waiting.popleft()
                self.sight.blind(SIGNAL, LOST)
        elif len(waiting) <= 3:  # two threads may begin at once
            self.wake()

    def took(self, ns: int) -> None:
        """Note what a hook took of a step that it watched, cold as it is there."""
        total_ns, steps = self._took
        self._took = total_ns + ns, steps + 1

    def take_took(self) -> float:
        """Mean of what hooks took of a step since the last call, in nanoseconds; 0 where none was measured."""
        (total_ns, steps), self._took = self._took, (0, 0)
        return total_ns / steps if steps else 0.0

    def waits(self) -> bool:
        """Whether something was left for later."""
        return bool(self._waiting)

    def work_off(self, patience_s: float = 0.0, breath_s: float = 0.0, most: int | None = None) -> bool:
        """Do what was left for later, the oldest first, unless another thread is at it for longer than the patience.

        `breath_s`: after a few steps sleep so long, which hands the interpreter's lock to whoever steps: what is worked
        off at one go would come on top of a single step of the engine. True where there was something to do.
        """
        if not self._turn.acquire(timeout=patience_s):
            return False
        try:
            found = bool(self._waiting)
            for at in range(len(self._waiting) if most is None else min(most, len(self._waiting))):
                if breath_s and at % FEW == FEW - 1:
                    sleep(breath_s)
                act, about = self._waiting.popleft()
                act(*about)
            return found
        finally:
            self._turn.release()

    def is_context_due(self) -> bool:
        """Whether the decode step that was just counted should tell how long its sequences are."""
        self._context_in -= 1
        if self._context_in >= 0:
            return False
        self._context_in = CONTEXT_ONE_IN - 1
        return True

    def context(self, tokens: int, sequences: int) -> None:
        """Note the context of a decode step of the main model: tokens over all its sequences, and how many."""
        before = self._context
        self._context = before[0] + tokens, before[1] + sequences

    def works(self) -> bool:
        """Whether a step was counted, or a graph replayed on this thread: what was before is warm-up and capture."""
        return bool(self._cells) or self.waits() or self.replays_here() > 0 or self.loop_works()

    def flush(self) -> None:
        """Tell the ledger what was counted since the last call; by the helper thread, before a window is made."""
        self.imports.catch_up()
        self.work_off(PATIENCE_S)
        for cell in list(self._cells.values()):
            count = cell.count
            if count != cell.told:
                self._ledger.add(count - cell.told, *cell.step)
                cell.told = count
        context, told = self._context, self._context_told
        if context != told:
            self._ledger.add_contexts(context[0] - told[0], context[1] - told[1])
            self._context_told = context
        if len(self._cells) >= MAX_CELLS:
            self._cells = {}  # a step under way at this moment may be lost, in a service of thousands of shapes

    def forget(self) -> None:
        """Start from nothing; a forked child goes its own way."""
        self._cells = {}
        self._waiting = deque()
        self._turn = threading.Lock()
        self._context = self._context_told = (0, 0)
        self.clock.reset()

    def _new_cell(self, step: tuple[Any, ...]) -> Cell:
        mode, batch, real_tokens, padded_tokens, reason, phase, component = step
        phase = None if phase == "decode" else phase
        component = None if component == "target" else component
        told = (mode, batch, real_tokens, padded_tokens, reason, phase, component)
        self.wake()
        cell = Cell(told, self.clock.pace(mode, phase, component))
        if len(self._cells) >= MAX_CELLS:  # told at once and not kept, until the next flush makes room
            self._ledger.add(1, *told)
            return cell
        return self._cells.setdefault(step, cell)


class EngineAdapter:
    """Base of the adapters: patches that come off together, facts for the configuration and the workload.

    A subclass sets `name` (the contract's Engine) and lists in `watched` the modules that it hooks, each with the
    method that does so once the module is there. A module that was renamed is never there: `brings` names modules that
    are imported where the engine works, each with the signal and the watched module that must come with it.
    """

    name = "unknown"
    brings: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def __init__(self, port: Port) -> None:
        self.port = port
        self.patches = PatchSet(port.sight)
        self._config: dict[str, Any] = {}
        self._workload: dict[str, Any] = {}
        self._memory: dict[str, int] = {}
        self._tells_context = Switch()
        self._placed = False

    def watched(self) -> dict[str, Callable[[ModuleType], None]]:
        """Modules to hook, by name, and what to do when each was imported."""
        raise NotImplementedError

    def place(self) -> None:
        """Wait for the engine's modules, and hook those that are there already. Twice is as good as once."""
        if self._placed:
            return
        self._placed = True
        for signal, name in self.brings.values():
            self._on(name, partial(self._clear, signal))
        for name, hook in self.watched().items():
            self._on(name, hook)
        for name, (signal, due) in self.brings.items():
            self._on(name, partial(self._miss, signal, due))

    def remove(self) -> None:
        """Take the hooks off. Modules that are imported later are not hooked any more."""
        self._placed = False
        self.patches.remove()

    def _on(self, name: str, hook: Callable[[ModuleType], None]) -> None:
        """Hook a module after each of its imports, and now if it is there."""
        self.port.imports.on(name, hook)
        self.port.imports.catch(name, hook)

    def _clear(self, signal: str, _: ModuleType) -> None:
        self.port.sight.clear(signal)

    def _miss(self, signal: str, due: str, module: ModuleType) -> None:
        if loaded(due) is None:
            self.port.sight.blind(signal, f"{module.__name__} was imported without {due}: not there in this version")

    def config(self) -> dict[str, Any]:
        """Fields of EngineConfig in the wire form, as far as they are known by now."""
        return dict(self._config)

    def workload(self) -> dict[str, Any]:
        """Fields of Workload that the engine knows best: model_name, rank."""
        return dict(self._workload)

    def memory(self) -> dict[str, int]:
        """Fields of GraphMemory as the engine measured them: estimated_bytes, and pool_bytes as a second witness."""
        return dict(self._memory)

    def know(self, **fields: Any) -> None:
        """Keep fields of the configuration; None leaves what was known."""
        self._config = self._config | {key: value for key, value in fields.items() if value is not None}

    def identify(self, **fields: Any) -> None:
        """Keep fields of the workload; None leaves what was known."""
        self._workload = self._workload | {key: value for key, value in fields.items() if value is not None}

    def context_of(self, read: Callable[..., tuple[int, int] | None], *args: Any) -> tuple[int, int] | None:
        """How long the sequences of a step are, as `read` says; None where it does not, or failed before."""
        if not self._tells_context:
            return None
        found: tuple[int, int] | None = self.guarded(f"{self.name} context lengths", self._tells_context, read, *args)
        return found

    def note_context(self, read: Callable[..., tuple[int, int] | None], *args: Any) -> None:
        """After a decode step of the main model: now and then, how long its sequences are.

        Shape: `read` gives tokens over all sequences and how many those are, from what the host has anyway.
        """
        if self.port.is_context_due():
            found = self.context_of(read, *args)
            if found is not None:
                self.port.context(*found)

    def guarded(self, hook: str, on: Switch, act: Callable[..., Any], *args: Any) -> Any:
        """Do something of ours inside somebody else's call: it may fail, the call may not."""
        try:
            return act(*args)
        except Exception as error:  # the probe's border
            on.off()
            self.port.sight.fault(hook, error)
            return None
