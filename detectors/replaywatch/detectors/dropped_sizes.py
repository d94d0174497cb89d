"""The engine captured fewer sizes than it was asked for."""

from __future__ import annotations

from typing import ClassVar

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Verdict
from replaywatch.detectors import causes
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.readings import times


class DroppedSizes:
    """Sizes were left out of the capture, for want of memory or because they cannot be had.

    Information: what it costs shows in the steps that have no graph.

    Bad at: engines that drop sizes without a word.
    """

    name: ClassVar[str] = "dropped_sizes"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        seen = causes.observations(evidence, "sizes_dropped")
        if not seen:
            return Blind(self.name, "no dropped size was reported")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"Captured sizes were dropped: {seen[0].detail}",
            evidence=tuple(EvidenceItem(o.detail, o.count, "times", o.where or "log") for o in seen[:5]),
            causes=tuple(Cause(o.detail, 0.9, f"said {times(o.count)}") for o in seen[:3]),
            remedy="Leave more memory for graphs, or list only sizes that are served, so that those are captured.",
            is_fault=False,
        )
