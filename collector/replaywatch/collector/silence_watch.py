"""Nodes that fell silent: an incident of their own kind, because nothing else would say that sight is lost.

Everything on a node goes silent at once when its agent, the node or the way from it is down. Whether its workloads are
well is then not known. A node that was drained looks the same; its incident ends when the node is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from replaywatch.collector.fleet import WorkloadView
from replaywatch.collector.identity import workload_id
from replaywatch.collector.memory import WorkloadMemory
from replaywatch.collector.tracker import IncidentTracker, Plan
from replaywatch.contract.verdict import EvidenceItem, Finding, Healthy
from replaywatch.contract.window import Workload
from replaywatch.detectors.judge import Judgement

DETECTOR: Final = "agent_silent"
# All nodes that fall silent together are one incident: a network that is cut is told once.
GROUP: Final = "nodes"
Nodes = Callable[[], Iterable[WorkloadMemory | WorkloadView]]


class SilenceWatch:
    """Looks at nodes at each tick; used by the detection thread only."""

    def __init__(self, silent_ns: int) -> None:
        self._silent_ns = silent_ns
        self._known: dict[str, Workload] = {}

    def look(
        self,
        tracker: IncidentTracker,
        plan: Plan,
        memories: Iterable[WorkloadMemory | WorkloadView],
        now_ns: int,
        started_ns: int,
    ) -> None:
        """Plan what the silence of nodes opens and closes."""
        last: dict[str, int] = {}
        counts: dict[str, int] = {}
        for memory in memories:
            node = memory.workload.node
            if node is not None:
                last[node] = max(last.get(node, started_ns), memory.last_seen_ns)
                counts[node] = counts.get(node, 0) + 1
        seen = {}
        for node, last_ns in last.items():
            who = agent_of(node)
            key = workload_id(who)
            seen[key] = who
            quiet_ns = now_ns - last_ns
            if quiet_ns > self._silent_ns or tracker.holds(key):
                finding = _finding(node, quiet_ns, counts[node]) if quiet_ns > self._silent_ns else None
                tracker.observe(plan, key, who, _judgement(who, finding), None, GROUP)
        for key, who in self._known.items():
            if key not in seen:
                tracker.silence(plan, key, who, is_gone=True)
        self._known = seen


def agent_of(node: str) -> Workload:
    """What stands for a node's agent where a workload is asked for."""
    return Workload(name=f"agent on {node}", node=node)


def _judgement(who: Workload, finding: Finding | None) -> Judgement:
    if finding is None:
        return Judgement(who, "healthy", "none", (), (Healthy(DETECTOR, "windows come"),), (), (), None)
    return Judgement(who, "finding", finding.severity, (finding,), (), (), (), None)


def _finding(node: str, quiet_ns: int, workloads: int) -> Finding:
    return Finding(
        detector=DETECTOR,
        subject=node,
        severity="warn",
        title="Nothing comes from this node any more",
        evidence=(
            EvidenceItem("silence", quiet_ns // 10**9, "s", "time of the last batch"),
            EvidenceItem("workloads out of sight", workloads, "", "windows of the last hours"),
        ),
        remedy="look whether the node and its agent run and reach the collector; meanwhile its workloads are unseen",
    )
