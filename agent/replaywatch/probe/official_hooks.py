"""torch 2.14's own hooks for the life of a graph (`torch.cuda.graphs.register_graph_*_hook`).

They tell of captures that began, replays, instantiations and graphs that were destroyed, chain with other tools by
design, and swallow what a hook raises. They do not tell of failures, durations of captures or resets: for those the
methods are wrapped as before 2.14.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Any

from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.replay_timing import ReplayTimer
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import MASK

NAMES = (
    "register_graph_capture_start_hook",
    "register_graph_replay_start_hook",
    "register_graph_replay_end_hook",
)


def available(module: Any) -> bool:
    """Whether this `torch.cuda.graphs` has the hooks that the probe uses."""
    return all(callable(getattr(module, name, None)) for name in NAMES)


class OfficialHooks:
    """Registered hooks of one session."""

    def __init__(self, ledger: GraphLedger, timer: ReplayTimer, sight: Sight) -> None:
        self._ledger, self._timer, self._sight = ledger, timer, sight
        self._handles: list[Any] = []

    def place(self, module: Any) -> None:
        """Register the hooks of `torch.cuda.graphs`."""
        self._handles += [
            module.register_graph_capture_start_hook(self.capture_began),
            module.register_graph_replay_start_hook(self.replay_begins),
            module.register_graph_replay_end_hook(self.replay_ended),
        ]

    def remove(self) -> None:
        """Take the hooks off."""
        while self._handles:
            self._handles.pop().remove()

    def capture_began(self, graph: Any) -> None:
        """Runs with the capture alive: host work only."""
        try:
            self._ledger.capture_began(graph)
        except Exception as error:  # the probe's border
            self._fault("graph captures", error)

    def replay_begins(self, graph: Any) -> None:
        """The hot path, first half."""
        try:
            recorder = self._ledger.recorders.local.recorder
        except AttributeError:
            recorder = self._ledger.recorders.new()
        recorder.error = sys.exc_info()[1]
        recorder.left -= 1
        recorder.timing = self._timer.begin(recorder) if recorder.left < 0 else None
        recorder.begin_ns = perf_counter_ns()

    def replay_ended(self, graph: Any) -> None:
        """The hot path, second half. torch runs it from a `finally`, so an error on its way is a replay that failed."""
        end_ns = perf_counter_ns()
        try:
            recorder = self._ledger.recorders.local.recorder
            error = sys.exc_info()[1]
            if error is not None and error is not recorder.error:
                self._ledger.call_failed(error, "replay")
                return
            if recorder.timing is not None:
                self._timer.end(graph, recorder, recorder.begin_ns, recorder.timing)
                recorder.timing = None
                return
            slot = self._ledger.slots.get(id(graph)) or self._ledger.unknown(graph)
            slot.replays += 1
            row = recorder.n
            at = row & MASK
            recorder.starts[at] = recorder.begin_ns
            recorder.durations[at] = end_ns - recorder.begin_ns
            recorder.graphs[at] = slot.number
            recorder.n = row + 1
        except Exception as error:  # the probe's border
            self._fault("graph replays", error)

    def _fault(self, hook: str, error: BaseException) -> None:
        self.remove()
        self._sight.fault(hook, error)
