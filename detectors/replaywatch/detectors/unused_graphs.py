"""Graphs were captured and are never replayed."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Severity, Verdict, WarmingUp
from replaywatch.detectors import causes, readings
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.evidence import Evidence

MIN_SECONDS: Final = 60.0


class UnusedGraphs:
    """A model part captured graphs, ran steps, and replayed none of them.

    Bad at: sizes that traffic has not reached yet are unused for a good reason; only a part that replays nothing at all
    is called a fault.
    """

    name: ClassVar[str] = "unused_graphs"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        dispatch = evidence.lifetime.dispatch
        captured = (dispatch.captures or {}).get("ok")
        if captured is None or dispatch.replays is None:
            return Blind(self.name, "captures and replays were not counted together")
        if not captured or dispatch.replays:
            return Healthy(self.name, f"{captured} captures, {dispatch.replays} replays")
        steps = sum((dispatch.steps or {}).values())
        if not steps and readings.window_seconds(evidence.lifetime) < MIN_SECONDS:
            return WarmingUp(self.name, "the first steps after capture")
        if not steps:
            return Blind(self.name, "graphs were captured, but no step has run")
        estimate = estimate_recoverable(evidence)
        severity: Severity = "warn" if estimate is None or estimate.severity == "none" else estimate.severity
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"{captured} graphs were captured and none was replayed in {steps} steps",
            evidence=(
                EvidenceItem("captures", captured, "", evidence.lifetime.origin),
                EvidenceItem("replays", 0, "", evidence.lifetime.origin),
                EvidenceItem("steps", steps, "", evidence.lifetime.origin),
            ),
            estimate=estimate,
            causes=(
                *causes.eager_causes(evidence),
                Cause("the steps never match a captured size or mode", 0.5, "captures without replays"),
            ),
            remedy="Check that this part is dispatched with the mode and sizes it was captured for.",
        )
