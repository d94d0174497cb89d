"""torch 2.14's own hooks for the life of a graph (`torch.cuda.graphs.register_graph_*_hook`).

They chain with other tools by design and swallow what a hook raises. Used for captures that begin and for
instantiations. Durations, failures and resets are in no hook.

Destroys are seen by weak references and `reset`: torch's hook is armed only for graphs made after it was registered, is
called for graphs that never captured as well, and is told numbers of executable graphs (none where nobody annotated
kernels), never the graph, so what it says can neither be counted nor be given an owner.

Replays are seen by wrapping the method: torch's way to its hooks costs 0.6 us a replay with two hooks that do nothing,
as much as the wrapper altogether (0.5 us; 1.3 us through the hooks; CPython 3.11, a 2-core virtual machine,
2026-11-29), and a hook is not told that the launch failed. They step in where the method cannot be wrapped.

Source: torch/cuda/graphs.py of 2.14 and after (`_arm_retained`, `_recorded_exec_ids`).
"""

from __future__ import annotations

import sys
import threading
from time import perf_counter_ns
from types import FrameType, TracebackType
from typing import Any

from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.replay_timing import ReplayTimer, Sample
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import MASK

CAPTURES, INSTANTIATIONS, GRAPH_REPLAYS = "graph captures", "graph instantiations", "graph replays"
CAPTURE_START = "register_graph_capture_start_hook"
INSTANTIATE = "register_graph_instantiate_hook"
REPLAYS = ("register_graph_replay_start_hook", "register_graph_replay_end_hook")


def available(module: Any) -> bool:
    """Whether this `torch.cuda.graphs` has the hooks that the probe uses."""
    return all(callable(getattr(module, name, None)) for name in (CAPTURE_START, INSTANTIATE, *REPLAYS))


class OfficialHooks:
    """Registered hooks of one session."""

    def __init__(self, ledger: GraphLedger, timer: ReplayTimer, sight: Sight) -> None:
        self._ledger, self._timer, self._sight = ledger, timer, sight
        self._handles: list[tuple[str, Any]] = []
        self._here = threading.local()

    def place_captures(self, module: Any) -> None:
        """Hear of captures that begin, and of instantiations."""
        self._handles.append((CAPTURES, module.register_graph_capture_start_hook(self.capture_began)))
        self._handles.append((INSTANTIATIONS, module.register_graph_instantiate_hook(self.instantiated)))

    def place_replays(self, module: Any) -> None:
        """Hear of replays, where the method cannot be wrapped."""
        self._handles.append((GRAPH_REPLAYS, module.register_graph_replay_start_hook(self.replay_begins)))
        self._handles.append((GRAPH_REPLAYS, module.register_graph_replay_end_hook(self.replay_ended)))

    def remove(self) -> None:
        """Take the hooks off."""
        while self._handles:
            self._handles.pop()[1].remove()

    def capture_began(self, graph: Any) -> None:
        """Runs with the capture alive: host work only."""
        try:
            self._ledger.capture_began(graph)
        except Exception as error:  # the probe's border
            self._fault(CAPTURES, error)

    def instantiated(self, graph: Any) -> None:
        """Runs after each instantiation that worked, whoever asked for it."""
        try:
            self._ledger.instantiated(graph)
        except Exception as error:  # the probe's border
            self._fault(INSTANTIATIONS, error)

    def replay_begins(self, graph: Any) -> None:
        """First half of a replay."""
        try:
            recorder = self._ledger.recorders.here()
            recorder.left -= 1
            sample = self._timer.begin(recorder) if recorder.left < 0 else None
            self._here.replay = (perf_counter_ns(), sample)
        except Exception as error:  # the probe's border
            self._fault(GRAPH_REPLAYS, error)

    def replay_ended(self, graph: Any) -> None:
        """Second half; torch runs it from a `finally`, so an error that comes from that frame is a failed launch."""
        end_ns = perf_counter_ns()
        try:
            begin_ns, sample = self._here.replay
            error = sys.exc_info()[1]
            if error is not None and _comes_from(error.__traceback__, sys._getframe(1)):
                self._ledger.call_failed(error, "replay")
                return
            self._count(graph, begin_ns, end_ns, sample)
        except Exception as error:  # the probe's border
            self._fault(GRAPH_REPLAYS, error)

    def _count(self, graph: Any, begin_ns: int, end_ns: int, sample: Sample | None) -> None:
        recorder = self._ledger.recorders.here()
        if sample is not None:
            self._timer.end(graph, recorder, begin_ns, sample)
            return
        slot = self._ledger.slot_of(graph)
        slot.replays += 1
        recorder.rows[recorder.n & MASK] = (begin_ns, end_ns, slot.number)
        recorder.n += 1

    def _fault(self, signal: str, error: BaseException) -> None:
        for kept, handle in self._handles:
            if kept == signal:
                handle.remove()
        self._sight.fault(signal, error)


def _comes_from(trace: TracebackType | None, frame: FrameType | None) -> bool:
    """Whether an error passed through one of the frames that are running now, next to a hook."""
    running = []
    for _ in range(4):
        if frame is None:
            break
        running.append(frame)
        frame = frame.f_back
    while trace is not None:
        if any(trace.tb_frame is f for f in running):
            return True
        trace = trace.tb_next
    return False
