"""`GraphLedger`: what happened to every graph of the process, counted exactly, without slowing a replay.

Hooks tell it of events; the helper thread takes the differences once per window. Replays are counted by the hooks
themselves in the graph's slot, which the graph carries as an attribute while the probe runs; all other events are rare
and may take a lock. The collector may run a finalizer that resets a graph wherever something is allocated, under that
lock too: its owner may take it again.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

from replaywatch.probe.counts import Tally, add_count
from replaywatch.probe.cuda_errors import error_name
from replaywatch.probe.owners import component_of, owner_of_caller, place_of_caller
from replaywatch.probe.patching import loaded
from replaywatch.probe.pools import GraphBytes
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import GraphSlot, Recorders
from replaywatch.probe.steps_in_replays import StepFinder

# Dispatch and timing of one component, in the wire form.
Part = tuple[dict[str, Any], dict[str, Any]]


class Captures:
    """Captures of one component since the last window: by outcome, and the time of those that ended well."""

    __slots__ = ("outcomes", "time")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.time = Tally()


class GraphLedger:
    """Slots of the graphs alive, and counts since the last window."""

    def __init__(self, sight: Sight, recorders: Recorders, on_event: Callable[[], None]) -> None:
        self._sight = sight
        self._on_event = on_event
        self.recorders = recorders
        self.reset()

    def reset(self) -> None:
        """Start from nothing; a forked child has none of its parent's graphs."""
        self._lock = threading.RLock()
        self._throwaway = threading.local()
        self._next_number = 1
        self._lost: deque[GraphSlot] = deque()
        # Keyed by id(graph): the entry leaves before the memory can be used again.
        self.slots: dict[int, GraphSlot] = {}
        self.by_number: dict[int, GraphSlot] = {}
        # By number of the graph: torch's stream, None where torch does not tell.
        self.capturing: dict[int, Any] = {}
        self.finder = StepFinder()
        self.bytes = GraphBytes()
        self._captures: dict[str | None, Captures] = {None: Captures()}
        self._instantiate = Tally()
        self._failed: dict[str, int] = {}
        self._instantiations: dict[str, int] = {}  # by owner, as the next two
        self._destroys: dict[str, int] = {}
        self._retired_replays: dict[str, int] = {}
        self._resets = 0
        self.ever = False
        self.device: int | None = None

    # Events, told by the hooks on the thread where they happen.

    def capture_began(self, graph: Any) -> GraphSlot:
        """A capture is about to begin, or has just begun, on this thread."""
        self._on_event()
        self.ever = True
        self._retire(self.slots.get(id(graph)))
        slot = self._new_slot(graph, owner_of_caller(), "capturing")
        slot.throwaway = bool(getattr(self._throwaway, "depth", 0))
        slot.before_bytes = self.bytes.reserved()
        self.device = self.bytes.current_device()
        slot.begin_ns = perf_counter_ns()
        self.capturing[slot.number] = None if self.device is None else loaded("torch").cuda.current_stream()
        return slot

    def capture_ended(self, graph: Any) -> None:
        """A capture ended well; up to torch 2.13 the graph is instantiated by then, unless it is kept."""
        now_ns = perf_counter_ns()
        slot = self.slots.get(id(graph))
        if slot is None or slot.state != "capturing":
            return
        self.capturing.pop(slot.number, None)
        slot.state = "ready"
        self.bytes.captured(slot, graph)
        with self._lock:
            captures = self._captures_of(slot)
            captures.time.add(now_ns - slot.begin_ns)
            add_count(captures.outcomes, "throwaway" if slot.throwaway else "ok")

    def capture_failed(self, graph: Any, error: BaseException, call: str) -> None:
        """`capture_begin` or `capture_end` raised."""
        slot = self.slots.get(id(graph))
        if slot is None or slot.state != "capturing":
            return
        self.capturing.pop(slot.number, None)
        slot.state = "failed"
        self.bytes.captured(slot, graph)
        name = error_name(error)
        with self._lock:
            add_count(self._captures_of(slot).outcomes, "failed")
            add_count(self._failed, name)
        where = place_of_caller()
        self._sight.observe("capture_failed", f"{call}: {name} (owner {slot.owner})", where)

    def capture_abandoned(self, number: int) -> None:
        """A capture's stream captures no longer, and no call that the probe saw has ended it."""
        self.capturing.pop(number, None)
        slot = self.by_number.get(number)
        if slot is None or slot.state != "capturing":
            return
        slot.state = "failed"
        with self._lock:
            add_count(self._captures_of(slot).outcomes, "failed")
            add_count(self._failed, "abandoned")
        self._sight.observe("capture_failed", f"abandoned (owner {slot.owner})")

    def capture_never_began(self, graph: Any, error: BaseException) -> None:
        """`capture_begin` raised where its official hook tells of those that began; it may have run all the same."""
        slot = self.slots.get(id(graph))
        if slot is None or slot.state != "capturing":
            self.capture_began(graph)
        self.capture_failed(graph, error, "capture_begin")

    def instantiated(self, graph: Any) -> None:
        """A graph was instantiated."""
        slot = self.slots.get(id(graph))
        if slot is not None:
            slot.instantiated = True
        with self._lock:
            add_count(self._instantiations, slot.owner if slot is not None else "unknown")

    def instantiate_took(self, duration_ns: int) -> None:
        """How long an instantiation took that is no part of a capture's own call."""
        with self._lock:
            self._instantiate.add(duration_ns)

    def instantiated_unseen(self, slot: GraphSlot) -> None:
        """A graph must have been instantiated, since it was replayed."""
        slot.instantiated = True
        with self._lock:
            add_count(self._instantiations, slot.owner)

    def call_failed(self, error: BaseException, call: str) -> None:
        """A graph call other than those of a capture raised."""
        self._on_event()
        name = error_name(error)
        with self._lock:
            add_count(self._failed, name)
        self._sight.observe("graph_call_failed", f"{call}: {name}")

    def was_reset(self, graph: Any) -> None:
        """`reset` was called: the graph is destroyed, the object may capture again."""
        slot = self.slots.pop(id(graph), None)
        _unmark(graph)
        if slot is not None and slot.state == "ready":
            with self._lock:
                self._resets += 1
        self._retire(slot)

    def slot_of(self, graph: Any) -> GraphSlot:
        """The slot of a graph that is replayed, by its id; the hot path finds it on the graph."""
        return self.slots.get(id(graph)) or self.unknown(graph)

    def let_go(self) -> None:
        """Leave nothing on the graphs that are alive; the probe ends."""
        for slot in list(self.slots.values()):
            if slot.ref is not None and (graph := slot.ref()) is not None:
                _unmark(graph)

    def unknown(self, graph: Any) -> GraphSlot:
        """The slot of a graph that was captured before the probe began."""
        self._on_event()
        self.ever = True
        return self._new_slot(graph, "unknown", "ready")

    # A capture that is made to be thrown away, such as vLLM's memory profiling.

    def enter_throwaway(self) -> None:
        """Captures that begin on this thread from now on are labelled throw-away."""
        self._throwaway.depth = getattr(self._throwaway, "depth", 0) + 1

    def leave_throwaway(self) -> None:
        """End what `enter_throwaway` began."""
        self._throwaway.depth = max(0, getattr(self._throwaway, "depth", 0) - 1)

    # Taken by the helper thread.

    def drain(self) -> None:
        """Work on what the threads recorded; a few times a second."""
        for recorder in self.recorders.alive():
            self.finder.drain(recorder, self.by_number)
        while self._lost:
            self._retire(self._lost.popleft())

    def take(self) -> tuple[dict[str | None, Part], dict[str, Any]]:
        """Dispatch and timing of each component, and memory, since the last call; absent where nothing is known.

        Shape: the engine itself is None; a draft model, where it captured graphs, a component of its own. Failed calls,
        resets, instantiation times, steps and memory are those of the process, and told with the engine itself.
        """
        self.drain()
        replays: dict[str, int] = {}
        for slot in list(self.slots.values()):
            now = slot.replays
            add_count(replays, slot.owner, now - slot.reported)
            slot.reported = now
            if now and not slot.instantiated and slot.owner != "unknown":
                # A kept graph that nobody instantiated: torch did it, in C++, at the first replay.
                self.instantiated_unseen(slot)
        with self._lock:
            # Each is replaced before it is read: what a finalizer counts meanwhile belongs to the next window.
            retired, self._retired_replays = self._retired_replays, {}
            instantiations, self._instantiations = self._instantiations, {}
            destroys, self._destroys = self._destroys, {}
            failed, self._failed = self._failed, {}
            resets, self._resets = self._resets, 0
            for owner, count in retired.items():
                add_count(replays, owner, count)
            counts = {"replays": replays, "instantiations": instantiations, "destroys": destroys}
            parts = {component: self._part(component, counts) for component in list(self._captures)}
            dispatch, timing = parts[None]
            dispatch["resets"] = resets
            if failed:
                dispatch["failed_calls"] = failed
            timing["instantiate"] = self._instantiate.take()
        timing["step_period"] = self.finder.step_period.take()
        timing["graph_launch_call"] = self.finder.launch_call.take()
        for _, times in parts.values():
            for name in [name for name, tally in times.items() if tally is None]:
                del times[name]
        ready = [s for s in list(self.slots.values()) if s.state in ("ready", "failed")]
        return parts, self.bytes.take(ready)

    def _part(self, component: str | None, counts: dict[str, dict[str, int]]) -> Part:
        """What belongs to the owners that are of one component. Shape: `counts` by name, then by owner."""
        ready = [s for s in list(self.slots.values()) if s.state == "ready" and component_of(s.owner) == component]
        nodes = [s.nodes for s in ready if s.nodes is not None]
        own = {
            name: {owner: n for owner, n in by_owner.items() if n and component_of(owner) == component}
            for name, by_owner in counts.items()
        }
        captures = self._captures[component]
        found: dict[str, Any] = {
            **{name: sum(by_owner.values()) for name, by_owner in own.items()},
            **{f"{name}_by_owner": by_owner for name, by_owner in own.items() if by_owner},
            "captures": captures.outcomes,
            "live_graphs": len(ready),
            "unused_graphs": sum(1 for s in ready if not s.replays and not s.throwaway),
        }
        captures.outcomes = {}
        if nodes:
            found["graph_nodes"] = sum(nodes)
        return found, {"capture": captures.time.take()}

    def _captures_of(self, slot: GraphSlot) -> Captures:
        return self._captures.setdefault(component_of(slot.owner), Captures())

    def _new_slot(self, graph: Any, owner: str, state: str) -> GraphSlot:
        key = id(graph)
        with self._lock:
            number = self._next_number
            self._next_number += 1
        slot = GraphSlot(number, owner, state)
        slot.key = key
        slots, lost = self.slots, self._lost

        def gone(_: object) -> None:
            # Runs wherever the collector runs, perhaps under our own lock: two atomic steps and nothing else.
            if slots.get(key) is slot:
                del slots[key]
            lost.append(slot)

        try:
            slot.ref = weakref.ref(graph, gone)
        except TypeError:
            self._sight.blind("graph destroys", "graphs of this torch cannot be weakly referenced")
        self.slots[key] = slot
        self.by_number[slot.number] = slot
        with suppress(AttributeError, TypeError):  # an object without attributes of its own is looked up by id
            graph._replaywatch_slot = slot
        return slot

    def _retire(self, slot: GraphSlot | None) -> None:
        """Move a slot's counts over, once; its graph was destroyed or replaced."""
        if slot is None or slot.state == "gone":
            return
        with self._lock:
            if slot.state == "capturing":
                add_count(self._captures_of(slot).outcomes, "failed")
                add_count(self._failed, "abandoned")
            elif slot.state == "ready":
                add_count(self._destroys, slot.owner)
            slot.state = "gone"
            add_count(self._retired_replays, slot.owner, slot.replays - slot.reported)
            slot.reported = slot.replays
            slot.follows = None  # else the latest graph would keep all before it
            self.capturing.pop(slot.number, None)
            self.by_number.pop(slot.number, None)
        self.bytes.destroyed(slot)


def _unmark(graph: Any) -> None:
    with suppress(AttributeError, TypeError):
        del graph._replaywatch_slot
