"""Everything is in graphs, but in many small ones (GLR hides it)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, Estimate, EvidenceItem, Finding, Healthy, Verdict, Vote
from replaywatch.contract.window import TracedWork
from replaywatch.detectors import causes, readings
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.voting import peers_vote

MANY_REPLAYS: Final = 4.0
LAUNCH_SHARE: Final = 0.05
# Below this, work outside graphs breaks the step, and partial coverage judges it.
WHOLE: Final = 0.99


class Fragmented:
    """A step is many graph launches although graphs hold all of its kernels.

    Severity from the idle between the graphs of a step, which one graph a step would not have. From counts alone,
    where nothing is traced, the host's time in launches is told as information.

    Bad at: micro-batches and pipelines that must launch several graphs a step; the host's launches may be hidden behind
    longer replays, which counts alone do not show.
    """

    name: ClassVar[str] = "fragmented"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        work = readings.traced(evidence)
        if work is None or not work.steps or not work.gaps_are_evidence:
            return self._from_counts(evidence)
        replays = work.graph_launches / work.steps
        if (work.coverage or 0.0) < WHOLE:
            return Healthy(self.name, "graphs do not hold all of the step; other detectors judge it")
        if replays < MANY_REPLAYS:
            return Healthy(self.name, f"{replays:.1f} graph launches a step")
        estimate = _estimate(work, replays)
        if estimate.severity == "none":
            return Healthy(self.name, f"{replays:.0f} graph launches a step, at little cost")
        return self._finding(evidence, work, replays, estimate)

    def _finding(self, evidence: Evidence, work: TracedWork, replays: float, estimate: Estimate) -> Finding:
        nodes = work.graph_kernels / work.graph_launches if work.graph_launches else 0.0
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=estimate.severity,
            title=f"A step is cut into {replays:.0f} graphs of {nodes:.0f} kernels each",
            evidence=(
                EvidenceItem("graph launches per step", round(replays, 2), "", work.method),
                EvidenceItem("kernels per graph launch", round(nodes, 1), "", work.method),
                EvidenceItem(
                    "idle after replays per step", round(work.replay_gap_ns / work.steps / 1000, 1), "us", work.method
                ),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=(
                Cause("each graph is launched apart, and the device waits for the next launch", 0.7, "launches a step"),
            ),
            remedy="Capture larger stretches: fewer breaks, a full-step mode where the engine has one.",
            votes=(
                causes.intent_vote(evidence),
                peers_vote(evidence),
                Vote("counterfactual", "for", f"{readings.percent(estimate.low)} or more of the step is recoverable"),
            ),
        )

    def _from_counts(self, evidence: Evidence) -> Verdict:
        figures, dispatch = evidence.figures, evidence.recent.dispatch
        if not dispatch.replays or not figures.steps or figures.step_us is None or figures.launch_us is None:
            return Blind(self.name, "neither traced steps nor launch times with steps were seen")
        replays = dispatch.replays / figures.steps
        share = min(1.0, replays * figures.launch_us / figures.step_us)
        if replays < MANY_REPLAYS or share < LAUNCH_SHARE:
            return Healthy(self.name, f"{replays:.1f} graph launches a step take {readings.percent(share)} of it")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"{replays:.0f} graph launches a step take {readings.percent(share)} of its time on the host",
            evidence=(
                EvidenceItem("graph launches per step", round(replays, 2), "", evidence.recent.origin),
                EvidenceItem("host time of a graph launch", round(figures.launch_us, 1), "us", evidence.recent.origin),
                EvidenceItem("step", round(figures.step_us, 1), "us", evidence.recent.origin),
            ),
            remedy="Let the probe trace kernels to learn whether the device waits for these launches.",
            is_fault=False,
        )


def _estimate(work: TracedWork, replays: float) -> Estimate:
    """Idle between the graphs of a step; the one between two steps stays."""
    share = min(1.0, work.replay_gap_ns / work.span_ns) * (1 - 1 / replays) if work.span_ns else 0.0
    return Estimate(
        share, 0.8 * share, min(1.0, 1.5 * share), work.span_ns / work.steps / 1000, method="idle between graphs"
    )
