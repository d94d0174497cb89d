"""Graphs are on, but much of the work runs outside them (D3)."""

from __future__ import annotations

from typing import ClassVar

from replaywatch.contract.verdict import Blind, Estimate, EvidenceItem, Finding, Healthy, Verdict, Vote, WarmingUp
from replaywatch.contract.window import TracedWork
from replaywatch.detectors import causes, readings
from replaywatch.detectors.calibration import MOSTLY_REPLAYED
from replaywatch.detectors.counterfactual import estimate_recoverable, replays_in_full
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.roofline import METHOD, estimate_by_roofline, is_uncertain, size_items
from replaywatch.detectors.voting import peers_vote


class PartialCoverage:
    """Graphs hold only a share of the kernels, and the rest leaves the device waiting.

    A piecewise engine that keeps the device busy is told, not alarmed.

    Bad at: steps whose rest cannot be captured (control flow on the host) look as recoverable as those whose rest can.
    """

    name: ClassVar[str] = "partial_coverage"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        work = readings.traced(evidence)
        if work is None or not work.total_kernels or work.coverage is None:
            estimate = estimate_by_roofline(evidence) if work is None else None
            if estimate is not None and _mostly_piecewise(evidence):
                return self._without_trace(evidence, estimate)
            return Blind(self.name, "no kernels were traced; attach the probe with its tracer or record a trace")
        if not work.total_graph_kernels:
            return Healthy(self.name, "no graph is used at all; another detector judges that")
        if work.coverage >= MOSTLY_REPLAYED and not _is_piecewise(work):
            return Healthy(self.name, f"graphs hold {readings.percent(work.coverage)} of the kernels", True)
        if replays_in_full(evidence) and not _is_piecewise(work):
            return Healthy(
                self.name,
                f"steps are replayed in full; the {readings.percent(1 - work.coverage)} of the kernels outside graphs "
                "surround the replays",
                True,
            )
        if not evidence.is_recording and work.steps < readings.MIN_LIVE_TRACED_STEPS:
            return WarmingUp(self.name, f"{readings.MIN_LIVE_TRACED_STEPS - work.steps} more traced steps", True)
        estimate = estimate_recoverable(evidence)
        severity = "info" if estimate is None else estimate.severity
        is_fault = estimate is not None and severity != "none"
        launches = work.graph_launches / work.steps if work.steps else float(work.graph_launches)
        title = (
            f"Graphs cover only {readings.percent(work.coverage)} of the kernels "
            f"({work.total_graph_kernels} of {work.total_kernels})"
            if is_fault
            else f"Graphs are piecewise: {launches:.0f} launches a step hold {readings.percent(work.coverage)} "
            "of the kernels"
        )
        if not is_fault and estimate is not None and work.coverage < 0.5:
            return Healthy(
                self.name,
                f"graphs hold {readings.percent(work.coverage)}, the rest keeps the device busy: "
                f"{readings.percent(estimate.ratio)} recoverable",
                True,
            )
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity if is_fault else "info",
            title=title,
            evidence=(
                *readings.work_items(work),
                EvidenceItem("graph launches per step", round(launches, 2), "", work.method),
                *(readings.estimate_items(estimate) if estimate else ()),
            ),
            estimate=estimate,
            causes=causes.eager_causes(evidence) if is_fault else (),
            remedy=self._remedy(evidence) if is_fault else None,
            votes=(
                causes.intent_vote(evidence),
                peers_vote(evidence),
                Vote("counterfactual", "for" if is_fault else "against", _reason(estimate)),
            ),
            is_fault=is_fault,
        )

    def _without_trace(self, evidence: Evidence, estimate: Estimate) -> Verdict:
        """Steps that are piecewise by the engine's own account; the cost comes from what a step must read."""
        total = sum((evidence.recent.dispatch.steps or {}).values())
        is_open = is_uncertain(estimate)
        if estimate.severity == "none" and not is_open:
            return Healthy(
                self.name, f"piecewise, and at least {readings.percent(1 - estimate.low)} may be needed", True
            )
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info" if is_open else estimate.severity,
            title=f"Graphs are piecewise: a step takes {(estimate.step_us or 0) / 1000:.1f} ms, and "
            f"about {(estimate.graph_step_us or 0) / 1000:.1f} ms as one graph"
            f"{', which a trace would settle' if is_open else ''}",
            evidence=(
                EvidenceItem("steps", total, "", evidence.recent.origin),
                *(size_items(evidence) if estimate.method == METHOD else ()),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=causes.eager_causes(evidence),
            remedy=(readings.TRACE_FIRST if is_open else "") + self._remedy(evidence),
            votes=(
                causes.intent_vote(evidence),
                peers_vote(evidence),
                Vote("counterfactual", "abstains", readings.between(estimate))
                if is_open
                else Vote("counterfactual", "for", _reason(estimate)),
            ),
        )

    def _remedy(self, evidence: Evidence) -> str:
        return (
            "Capture the rest of the step: move what breaks the capture (host reads, CPU tensors, data-dependent "
            "shapes) out of it. " + causes.enable_remedy(evidence)
        )


def _mostly_piecewise(evidence: Evidence) -> bool:
    steps = evidence.recent.dispatch.steps or {}
    return steps.get("piecewise", 0) > 0.5 * sum(steps.values())


def _reason(estimate: Estimate | None) -> str:
    if estimate is None:
        return "this tracer's stamps say nothing about gaps"
    return readings.between(estimate)


def _is_piecewise(work: TracedWork) -> bool:
    """Many replays a step with eager work between them."""
    steps = work.steps or 1
    return work.graph_launches > 3 * steps and (work.coverage or 0.0) < 0.99
