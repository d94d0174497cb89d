"""Graph memory keeps growing while the service runs."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Severity, Verdict, WarmingUp
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.pool_growth import SETTLING_NS

TOLD_RATIO: Final = 1.25
TOLD_BYTES: Final = 256 << 20
# An engine that captures the sizes it meets stops after some; one that goes on leaks.
MANY_RISES: Final = 8
LEAK_RATIO: Final = 1.5


class GraphMemoryGrowth:
    """Pools of graphs hold a quarter more than after the first ten minutes, and more each time.

    Information; a warning once it has risen eight times and by half.

    Bad at: engines that capture lazily look like this until they have met all their sizes; pools shared with others.
    """

    name: ClassVar[str] = "graph_memory_growth"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        growth = evidence.sudden.growth if evidence.sudden is not None else None
        if growth is None or growth.settled_bytes is None or growth.last_bytes is None or evidence.is_recording:
            return Blind(self.name, "graph memory was not followed over time")
        if evidence.sudden is not None and evidence.sudden.end_ns - growth.first_ns < SETTLING_NS:
            return WarmingUp(self.name, "ten minutes of graph memory")
        more = growth.last_bytes - growth.settled_bytes
        if more < TOLD_BYTES or growth.last_bytes < TOLD_RATIO * growth.settled_bytes:
            return Healthy(self.name, "graph memory is what it was after the start")
        leaks = growth.rises >= MANY_RISES and growth.last_bytes >= LEAK_RATIO * growth.settled_bytes
        severity: Severity = "warn" if leaks else "info"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"Graph memory grew by {more / 2**30:.2f} GiB since the start, in {growth.rises} steps",
            evidence=(
                EvidenceItem("graph memory after ten minutes", growth.settled_bytes, "bytes", "windows"),
                EvidenceItem("graph memory now", growth.last_bytes, "bytes", "windows"),
                EvidenceItem("captures since", growth.captures, "", "windows"),
            ),
            causes=(
                (Cause("new shapes are captured and their pools kept", 0.7, f"{growth.captures} captures since"),)
                if growth.captures
                else (Cause("pools grow without captures that were seen", 0.4, "no captures since"),)
            ),
            remedy="Bucket or pad the shapes that are captured, and drop graphs that are not replayed any more.",
            is_fault=leaks,
        )
