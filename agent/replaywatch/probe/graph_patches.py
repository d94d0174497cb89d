"""Wrappers around the methods of `torch.cuda.CUDAGraph`: the only way in before torch 2.14.

The names are the same from 2.4 to 2.14. Until 2.13 a graph that is not kept is instantiated inside `capture_end`,
which is then counted as an instantiation; 2.14 calls `instantiate` from there.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from replaywatch.probe.graph_nodes import NodeCounter
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.patching import Function, PatchSet, Switch, accepts, torch_since
from replaywatch.probe.replay_timing import ReplayTimer
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import MASK, Recorders

# Low bits of the countdown to the next timed replay; a launch that meets one of them set is not timed.
UNTIMED = 3


class Rare:
    """What the hot path needs now and then."""

    __slots__ = ("_fault", "failed", "local", "new_recorder", "on", "slot_of", "timed")

    def __init__(
        self, on: Switch, ledger: GraphLedger, timed: Function, fault: Callable[[str, Exception], None]
    ) -> None:
        self.on, self.timed, self._fault = on, timed, fault
        self.failed, self.slot_of = ledger.call_failed, ledger.slot_of
        self.local, self.new_recorder = ledger.recorders.local, ledger.recorders.new

    def off(self, error: Exception) -> None:
        """The hook itself failed: it goes, the replay stays."""
        self.on.off()
        self._fault("graph replays", error)


def _counted(original: Function, rare: Rare) -> Function:
    """A replay that is counted and nothing else; where the hook is off, not even that."""
    local, on = rare.local, rare.on

    def counted(graph: Any) -> Any:
        if not on:
            return original(graph)
        try:
            result = original(graph)
        except BaseException as error:
            rare.failed(error, "replay")
            raise
        try:
            try:
                slot = graph._replaywatch_slot
            except AttributeError:
                slot = rare.slot_of(graph)
            slot.replays += 1
            try:
                local.recorder.unwritten += 1
            except AttributeError:
                rare.new_recorder().unwritten += 1
        except Exception as error:  # the probe's border
            rare.off(error)
        return result

    return counted


class GraphPatches:
    """Makes the wrappers; `official` says that torch's own hooks tell of captures that begin and of instantiations."""

    def __init__(self, ledger: GraphLedger, timer: ReplayTimer, sight: Sight, nodes: NodeCounter) -> None:
        self._ledger, self._timer, self._sight, self._nodes = ledger, timer, sight, nodes
        self._gates: list[Callable[[bool], None]] = []

    def place(self, patches: PatchSet, kind: Any, official: bool) -> bool:
        """Wrap the methods of the class `kind`; False where its replays cannot be seen that way."""
        begin = self.begin_failures if official else self.capture_begin
        patches.wrap(kind, "capture_begin", "graph captures", begin)
        patches.wrap(kind, "capture_end", "graph captures", self.capture_end)
        patches.wrap(kind, "reset", "graph resets", self.reset)
        if official:
            patches.wrap(kind, "instantiate", "graph instantiate times", self.instantiate_times)
        elif torch_since(2, 9):
            patches.wrap(kind, "instantiate", "graph instantiations", self.instantiate)
        return patches.wrap(kind, "replay", "graph replays", self.replay)

    def replay(self, original: Function, on: Switch) -> Function:
        """Counts replays, and notes when each was made."""
        if not accepts(original, 1) or getattr(getattr(original, "__code__", None), "co_argcount", 1) != 1:
            return self._replay_of_unknown_shape(original, on)
        return self._replay(original, on)

    def _replay(self, original: Function, on: Switch) -> Function:
        """The hot path: one attribute, one clock reading, one row of a ring, and one launch in four is timed.

        Which, the countdown to the next timed replay says: by default it begins anew after 61, 64 or 65 replays, so
        that graphs which always follow one another take turns. It took 0.8 to 1.4 us on four H200 hosts while each
        launch was timed and slots were looked up by id.

        Where the budget does not allow that, replays are only counted: no clock reading, no row.
        """
        # A call copies what a function takes from around it: so few names, and one for all that is rare.
        rare = Rare(on, self._ledger, self._timer.timed, self._sight.fault)
        local, clock, counted = rare.local, perf_counter_ns, _counted(original, rare)
        gate: list[bool] = on  # the one thing that is asked of every replay; empty where they are only counted

        def count_only(yes: bool) -> None:
            nonlocal gate
            gate = [] if yes else on

        def replay(self: Any) -> Any:
            if not gate:
                return counted(self)
            try:
                recorder = local.recorder
            except AttributeError:
                recorder = rare.new_recorder()
            left = recorder.left - 1
            recorder.left = left
            if left < 0:
                return rare.timed(self, recorder, original)
            begin_ns = clock()
            try:
                result = original(self)
            except BaseException as error:
                rare.failed(error, "replay")
                raise
            try:
                try:
                    slot = self._replaywatch_slot
                except AttributeError:
                    slot = rare.slot_of(self)
                slot.replays += 1
                row = recorder.n
                recorder.rows[row & MASK] = (begin_ns, 0 if left & UNTIMED else clock(), slot.number)
                recorder.n = row + 1
            except Exception as error:  # the probe's border
                rare.off(error)
            return result

        self._gates.append(count_only)
        return replay

    def count_only(self, yes: bool) -> bool:
        """Count replays and nothing else from now on, or see all of them again; False where none is wrapped."""
        for gate in self._gates:
            gate(yes)
        return bool(self._gates)

    def practice(self, original: Function, count_only: bool = False) -> Function:
        """The replay wrapper over ledgers of its own: what the helper thread measures its cost with."""
        sight = Sight()
        ledger = GraphLedger(sight, Recorders(0, _nothing), _nothing)
        ledger.recorders.here().left = 1 << 62  # nothing is replayed on this thread's stream
        patches = GraphPatches(ledger, ReplayTimer(ledger, sight, 1.0), sight, self._nodes)
        wrapped = patches.replay(original, Switch())
        patches.count_only(count_only)
        return wrapped

    def _replay_of_unknown_shape(self, original: Function, on: Switch) -> Function:
        """For a replay that another tool gave more arguments: the same, a little slower."""

        def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
            return simple(self) if on and not args and not kwargs else original(self, *args, **kwargs)

        def bare(self: Any) -> Any:
            return original(self)

        simple = self._replay(bare, on)
        return replay

    def capture_begin(self, original: Function, on: Switch) -> Function:
        """Notes a capture before it begins, since nothing may be done while it runs."""
        ledger, sight = self._ledger, self._sight

        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(self, *args, **kwargs)
            _guarded(sight, on, "graph captures", ledger.capture_began, self)
            try:
                return original(self, *args, **kwargs)
            except BaseException as error:
                _guarded(sight, on, "graph captures", ledger.capture_failed, self, error, "capture_begin")
                raise

        return capture_begin

    def capture_end(self, original: Function, on: Switch) -> Function:
        """Counts the nodes while the graph is still being captured, then notes how the capture ended."""
        ledger, sight, nodes = self._ledger, self._sight, self._nodes

        def ended(graph: Any) -> None:
            ledger.capture_ended(graph)
            if not hasattr(type(graph), "register_capture_end_hook") and not _kept(graph):
                ledger.instantiated(graph)

        def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(self, *args, **kwargs)
            _guarded(sight, on, "graph nodes", nodes.count, ledger.slots.get(id(self)))
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                _guarded(sight, on, "graph captures", ledger.capture_failed, self, error, "capture_end")
                raise
            _guarded(sight, on, "graph captures", ended, self)
            return result

        return capture_end

    def begin_failures(self, original: Function, on: Switch) -> Function:
        """Where the official hook tells of captures that began: those that could not begin."""
        ledger, sight = self._ledger, self._sight

        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(self, *args, **kwargs)
            try:
                return original(self, *args, **kwargs)
            except BaseException as error:
                _guarded(sight, on, "graph captures", ledger.capture_never_began, self, error)
                raise

        return capture_begin

    def instantiate(self, original: Function, on: Switch) -> Function:
        """Counts and times instantiations that Python sees (torch 2.9 and later)."""
        return self._instantiate(original, on, self._ledger.instantiated)

    def instantiate_times(self, original: Function, on: Switch) -> Function:
        """Where the official hook counts them: how long they take, and those that fail."""
        return self._instantiate(original, on, _not_counted)

    def _instantiate(self, original: Function, on: Switch, count: Callable[[Any], None]) -> Function:
        ledger, sight = self._ledger, self._sight

        def told(graph: Any, took_ns: int) -> None:
            count(graph)
            ledger.instantiate_took(took_ns)

        def instantiate(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(self, *args, **kwargs)
            begin_ns = perf_counter_ns()
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                slot = ledger.slots.get(id(self))
                if slot is None or slot.state != "capturing":  # else the failing capture_end counts it
                    _guarded(sight, on, "graph instantiations", ledger.call_failed, error, "instantiate")
                raise
            took_ns = perf_counter_ns() - begin_ns
            _guarded(sight, on, "graph instantiations", told, self, took_ns)
            return result

        return instantiate

    def reset(self, original: Function, on: Switch) -> Function:
        """Notes that a graph was destroyed while its object lives on, or that it could not be."""
        ledger, sight = self._ledger, self._sight

        def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                if on:
                    _guarded(sight, on, "graph resets", ledger.call_failed, error, "reset")
                raise
            if on:
                _guarded(sight, on, "graph resets", ledger.was_reset, self)
            return result

        return reset


def _nothing() -> None:
    """For ledgers that nobody waits for."""


def _not_counted(graph: Any) -> None:
    """For instantiations that a hook of torch's counts."""


def _kept(graph: Any) -> bool:
    """Whether torch left the graph uninstantiated (keep_graph=True): its graph handle can still be asked for."""
    raw = getattr(graph, "raw_cuda_graph", None)
    if raw is None:
        return False
    try:
        raw()
    except Exception:  # the probe's border: torch raises where the graph was not kept
        return False
    return True


def _guarded(sight: Sight, on: Switch, hook: str, act: Function, *args: Any) -> None:
    """Do something of ours inside somebody else's call: it may fail, the call may not."""
    try:
        act(*args)
    except Exception as error:  # the probe's border
        on.off()
        sight.fault(hook, error)
