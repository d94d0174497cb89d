"""What the hook on a replay takes around a method that does nothing, and what counting only takes. Needs no GPU.

python tests/bench/bench_hook.py

In a loop, and cold: as in an engine, where between two replays the processor does so much else that nothing of the hook
is in its caches.
"""

from __future__ import annotations

import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "tests" / "bench")]

from cold import something_else  # noqa: E402

from replaywatch.probe.graph_nodes import NodeCounter  # noqa: E402
from replaywatch.probe.graph_patches import GraphPatches  # noqa: E402
from replaywatch.probe.ledger import GraphLedger  # noqa: E402
from replaywatch.probe.patching import Switch  # noqa: E402
from replaywatch.probe.replay_timing import ReplayTimer  # noqa: E402
from replaywatch.probe.sight import Sight  # noqa: E402
from replaywatch.probe.slots import Recorders  # noqa: E402


class Graph:
    """Stands for a graph."""

    def replay(self) -> None:
        """Do nothing."""


def fastest_ns(call: Callable[[Graph], object], graph: Graph, times: int = 5000, rounds: int = 200) -> float:
    """Nanoseconds a call in the fastest of many rounds."""
    best = float("inf")
    for _ in range(rounds):
        begin = perf_counter_ns()
        for _ in range(times):
            call(graph)
        best = min(best, (perf_counter_ns() - begin) / times)
    return best


def cold_ns(call: Callable[[Graph], object], bare: Callable[[Graph], object], graph: Graph, times: int = 1500) -> float:
    """Nanoseconds that a call takes longer than the bare one, each after something else: the median."""
    took: dict[bool, list[int]] = {True: [], False: []}
    for at in range(2 * times):
        which = bool((at + at // 2) % 2)  # in turns, and in turns first
        something_else()
        begin = perf_counter_ns()
        (call if which else bare)(graph)
        took[which].append(perf_counter_ns() - begin)
    return statistics.median(took[True]) - statistics.median(took[False])


def main() -> None:
    """Measure and print."""
    sight, graph = Sight(), Graph()
    ledger = GraphLedger(sight, Recorders(0, lambda: None), lambda: None)
    ledger.recorders.here().left = 1 << 62  # there is no stream to note
    patches = GraphPatches(ledger, ReplayTimer(ledger, sight, 30.0), sight, NodeCounter(sight))
    hook = patches.replay(Graph.replay, Switch())
    bare = fastest_ns(Graph.replay, graph)
    full, full_cold = fastest_ns(hook, graph) - bare, cold_ns(hook, Graph.replay, graph)
    patches.count_only(True)
    only, only_cold = fastest_ns(hook, graph) - bare, cold_ns(hook, Graph.replay, graph)
    print(f"Python {platform.python_version()}: hook {full:.0f} ns, counting only {only:.0f} ns ({only / full:.2f})")
    print(f"cold: hook {full_cold:.0f} ns, counting only {only_cold:.0f} ns ({only_cold / full_cold:.2f})")


if __name__ == "__main__":
    main()
