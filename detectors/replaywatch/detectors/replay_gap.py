"""Everything is replayed, yet the device waits between replays (D9)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, Estimate, EvidenceItem, Finding, Healthy, Verdict, Vote
from replaywatch.contract.window import TracedWork
from replaywatch.detectors import readings
from replaywatch.detectors.counterfactual import model_step
from replaywatch.detectors.evidence import Evidence

COVERED_RATIO: Final = 0.8


class ReplayGap:
    """Graphs hold the kernels, but host work between two replays leaves the device idle.

    Bad at: it cannot tell planning that could overlap from a request that has not come; idle stretches are left out of
    traces, and the live gap histogram only holds gaps between back-to-back steps.
    """

    name: ClassVar[str] = "replay_gap"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        work = readings.traced(evidence)
        if work is None or not work.steps or not work.gaps_are_evidence:
            return Blind(self.name, "no steps with usable stamps were traced")
        if not work.graph_launches or (work.coverage or 0.0) < COVERED_RATIO:
            return Healthy(self.name, "the step is not mostly replayed; other detectors judge it")
        estimate = _gap_estimate(work)
        if estimate is None or estimate.severity == "none":
            share = estimate.ratio if estimate else 0.0
            return Healthy(self.name, f"the device waits {readings.percent(share)} of the step between replays")
        replays = work.graph_launches / work.steps
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=estimate.severity,
            title=(
                f"Graphs hold {readings.percent(work.coverage or 0)} of the kernels, yet the device waits "
                f"{readings.percent(estimate.ratio)} of each step between replays"
            ),
            evidence=(
                EvidenceItem(
                    "idle between replays per step", round(work.replay_gap_ns / work.steps / 1000, 1), "us", work.method
                ),
                EvidenceItem("replays per step", round(replays, 2), "", work.method),
                *readings.work_items(work),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=_gap_causes(work, replays),
            remedy=(
                "Shorten or overlap what the host does between replays: plan the next step while this one runs, "
                "avoid reading results back each step, or capture fewer, larger graphs."
            ),
            votes=(Vote("counterfactual", "for", "the idle time was seen on the device"),),
        )


def _gap_estimate(work: TracedWork) -> Estimate | None:
    """Share of the step without tracer in which the device waits between replays."""
    step = model_step(work)
    if step is None:
        return None
    gap_ns = work.replay_gap_ns / work.steps
    host_tracer_ns = max(0.0, step.tracer_ns)
    real_gap_ns = max(0.0, gap_ns - min(host_tracer_ns, 0.5 * gap_ns))
    step_ns = max(step.busy_ns, step.traced_ns - (gap_ns - real_gap_ns))
    ratio = real_gap_ns / step_ns
    return Estimate(
        ratio,
        max(0.0, 0.8 * ratio),
        min(1.0, gap_ns / step.traced_ns * 1.05),
        step_ns / 1000,
        (step_ns - real_gap_ns) / 1000,
        method="idle between replays",
    )


def _gap_causes(work: TracedWork, replays_per_step: float) -> tuple[Cause, ...]:
    found = []
    if work.host_fixed_ns and work.replay_gap_ns and work.host_fixed_ns > 0.4 * work.replay_gap_ns:
        found.append(Cause("the host waits for the device, then plans the next step", 0.8, "time from wait to launch"))
    if replays_per_step > 10:
        found.append(Cause("the step is cut into many small graphs", 0.7, f"{replays_per_step:.0f} replays a step"))
    found.append(Cause("work on the host between replays (planning, sampling, data loading)", 0.5, "idle device"))
    return tuple(found)
