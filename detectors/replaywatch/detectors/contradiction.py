"""Two witnesses of the same steps do not agree, so neither is believed blindly."""

from __future__ import annotations

from typing import ClassVar

from replaywatch.contract.verdict import Blind, EvidenceItem, Finding, Verdict
from replaywatch.detectors import causes
from replaywatch.detectors.evidence import Evidence


class Contradiction:
    """The engine's own counts or log tell another story than the probe.

    Bad at: which of the two is right; a probe that hooks a part of the engine only, and an engine that counts
    warm-up runs, both look like this.
    """

    name: ClassVar[str] = "contradiction"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        seen = causes.observations(evidence, "witness_contradicts")
        if not seen:
            return Blind(self.name, "no second witness contradicted the first")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"Two witnesses disagree: {seen[0].detail}",
            evidence=tuple(EvidenceItem(o.detail, o.count, "times", o.where or "agent") for o in seen[:4]),
            remedy="Compare engine version and hooks (replaywatch doctor); until then trust neither number alone.",
            is_fault=False,
        )
