"""Graphs make the step slower than eager (D6)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, Estimate, EvidenceItem, Finding, Healthy, Verdict, Vote
from replaywatch.detectors import readings
from replaywatch.detectors.causes import intent_vote
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.voting import peers_vote

# One study of 25 applications calls 3 % a regression; 4 of them were.
HARM_RATIO: Final = 1.03
MIN_STEPS = 20


class Harmful:
    """The same process ran the same work both ways, and replayed steps took longer.

    Bad at: modes that serve different batches cannot be compared; prefill steps are left out, but a process whose eager
    steps are its small ones looks harmed.
    """

    name: ClassVar[str] = "harmful"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        times = evidence.recent.timing.step_by_mode or evidence.lifetime.timing.step_by_mode or {}
        eager, full = times.get("eager"), times.get("full") or times.get("piecewise")
        if eager is None or full is None or eager.count < MIN_STEPS or full.count < MIN_STEPS:
            return Blind(self.name, "the process did not run enough steps both ways")
        if evidence.workload.phase in ("prefill", "mixed") or _sizes_differ(evidence):
            return Blind(self.name, "eager and replayed steps did different work")
        eager_us, full_us = (eager.mean or 0) / 1000, (full.mean or 0) / 1000
        if full_us < eager_us * HARM_RATIO:
            return Healthy(self.name, f"replayed steps take {full_us:.0f} us, eager ones {eager_us:.0f} us")
        ratio = 1 - eager_us / full_us
        weight = full.sum / (full.sum + eager.sum)
        estimate = Estimate(
            ratio * weight, ratio * weight * 0.7, ratio * weight, full_us, eager_us, "eager against replay"
        )
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info" if estimate.severity == "none" else estimate.severity,
            title=f"Replayed steps are slower than eager ones: {full_us:.0f} us against {eager_us:.0f} us",
            evidence=(
                EvidenceItem("replayed step", round(full_us, 1), "us", evidence.recent.origin),
                EvidenceItem("eager step", round(eager_us, 1), "us", evidence.recent.origin),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=(
                Cause("copies into static inputs or padding cost more than the launches saved", 0.5, "step times"),
            ),
            remedy="Run this work eager, or remove the copies into static inputs; measure both ways on your traffic.",
            votes=(
                intent_vote(evidence),
                peers_vote(evidence),
                Vote("counterfactual", "for", "both ways were measured"),
            ),
        )


def _sizes_differ(evidence: Evidence) -> bool:
    """True when the batches of eager steps are not those of replayed ones, within a quarter."""
    sizes, eager = evidence.recent.dispatch.batch_sizes, evidence.recent.dispatch.eager_batch_sizes
    if not sizes or not eager:
        return False
    replayed = {size: n - eager.get(size, 0) for size, n in sizes.items()}
    total, eager_total = sum(replayed.values()), sum(eager.values())
    if total <= 0 or eager_total <= 0:
        return True
    mean = sum(s * n for s, n in replayed.items()) / total
    eager_mean = sum(s * n for s, n in eager.items()) / eager_total
    return not 0.75 <= (eager_mean or 1) / (mean or 1) <= 1.33
