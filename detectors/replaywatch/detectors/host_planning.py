"""A kernel library plans each step on the host before it can be launched."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Severity, Verdict
from replaywatch.detectors import readings
from replaywatch.detectors.evidence import Evidence

INFO_SHARE: Final = 0.05
WARN_SHARE: Final = 0.25
MIN_PLANS: Final = 20


class HostPlanning:
    """Planning on the host takes 5 % of the step or more; a warning from a quarter, where the device also waits.

    Bad at: schedulers that run one batch ahead hide planning behind the device's work; then it costs nothing, and only
    idle between replays says otherwise.
    """

    name: ClassVar[str] = "host_planning"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        plans, figures = evidence.recent.timing.host_plan, evidence.figures
        if plans is None or plans.count < MIN_PLANS or figures.step_us is None or not figures.steps:
            return Blind(self.name, "no planning was timed")
        plan_us = plans.sum / 1000 / figures.steps
        share = min(1.0, plan_us / figures.step_us)
        if share < INFO_SHARE:
            return Healthy(self.name, f"planning takes {readings.percent(share)} of the step")
        waits = figures.gap_us is not None and figures.gap_us >= 0.5 * plan_us
        severity: Severity = "warn" if share >= WARN_SHARE and waits else "info"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"The host plans {plan_us:.0f} us a step before it launches, {readings.percent(share)} of the step",
            evidence=(
                EvidenceItem("planning per step", round(plan_us, 1), "us", evidence.recent.origin),
                EvidenceItem("plans per step", round(plans.count / figures.steps, 2), "", evidence.recent.origin),
                *(
                    (EvidenceItem("idle between replays", round(figures.gap_us, 1), "us", evidence.recent.origin),)
                    if figures.gap_us is not None
                    else ()
                ),
            ),
            causes=(Cause("the attention library plans every step anew on the host", 0.7, "time inside plan calls"),),
            remedy="Overlap planning with the step before, plan once for several steps, or plan on the device.",
            is_fault=severity == "warn",
        )
