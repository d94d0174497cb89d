"""What capturing cost at start: time and memory (D10). Information, never a fault."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, EvidenceItem, Finding, Healthy, Verdict
from replaywatch.detectors.evidence import Evidence

SLOW_CAPTURE_SECONDS: Final = 60.0
MEMORY_RATIO: Final = 1.25
MEMORY_BYTES: Final = 200 << 20


class SlowCapture:
    """Capturing took a minute or more.

    Bad at: whether a minute matters depends on how often the service starts.
    """

    name: ClassVar[str] = "slow_capture"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        capture = evidence.lifetime.timing.capture
        if capture is None or not capture.count:
            return Blind(self.name, "capture times are unknown")
        seconds = capture.sum / 1e9
        if seconds < SLOW_CAPTURE_SECONDS:
            return Healthy(self.name, f"capturing took {seconds:.1f} s")
        pool = evidence.lifetime.memory.pool_bytes
        memory = f" and holds {pool / 2**30:.2f} GiB" if pool else ""
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"Capturing graphs took {seconds:.0f} s at start{memory}",
            evidence=(
                EvidenceItem("capture time", round(seconds, 1), "s", evidence.lifetime.origin),
                *([EvidenceItem("graph memory", pool, "bytes", evidence.lifetime.origin)] if pool else []),
            ),
            remedy="Capture fewer sizes, or reuse a compile cache, if starts are frequent; it does not slow the steps.",
            is_fault=False,
        )


class GraphMemoryEstimate:
    """The engine reserved much less memory for graphs than they took.

    Bad at: engines that do not say what they reserved.
    """

    name: ClassVar[str] = "graph_memory_estimate"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        memory = evidence.lifetime.memory
        if memory.pool_bytes is None or memory.estimated_bytes is None:
            return Blind(self.name, "estimated and actual graph memory are not both known")
        over = memory.pool_bytes - memory.estimated_bytes
        if abs(over) < MEMORY_BYTES or (
            1 / MEMORY_RATIO < (memory.pool_bytes + 1) / (memory.estimated_bytes + 1) < MEMORY_RATIO
        ):
            return Healthy(self.name, "estimated and actual graph memory agree")
        more = "more" if over > 0 else "less"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"Graphs took {abs(over) / 2**30:.2f} GiB {more} than the engine estimated",
            evidence=(
                EvidenceItem("actual graph memory", memory.pool_bytes, "bytes", evidence.lifetime.origin),
                EvidenceItem("estimated graph memory", memory.estimated_bytes, "bytes", evidence.lifetime.origin),
            ),
            remedy="Leave that much more memory free; if start-up runs out of memory, lower the engine's memory share.",
            is_fault=False,
        )
