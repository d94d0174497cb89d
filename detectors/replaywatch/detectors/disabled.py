"""Graphs are off, and that costs time (D1, R3)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Estimate, EvidenceItem, Finding, Healthy, Verdict, Vote, WarmingUp
from replaywatch.contract.window import TracedWork
from replaywatch.detectors import causes, readings
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.figures import eager_by_design
from replaywatch.detectors.own_steps import estimate_by_own_steps
from replaywatch.detectors.roofline import METHOD, estimate_by_roofline, is_uncertain, size_items
from replaywatch.detectors.voting import peers_vote

DENSE_LAUNCH_NS: Final = 50_000
# Words of vLLM and SGLang for a process that only fills caches; SGLang switches its decode graphs off itself.
PREFILL_ROLES: Final = ("prefill", "kv_producer")


class Disabled:
    """No graph is launched although the step is many short kernels and the device waits for the host.

    Severity comes from the low end of the recoverable share, never from graphs being off: eager work that keeps the
    device busy is healthy, and so is a step of few kernels.

    Bad at: a host that stalls for reasons of its own inside an eager step (a data loader between launches) looks
    recoverable; steps that change shape every time cannot be captured although they would gain.
    """

    name: ClassVar[str] = "disabled"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        work = readings.traced(evidence)
        if work is None or not work.total_kernels:
            return self._without_trace(evidence)
        if work.graph_launches or work.total_graph_kernels:
            return Healthy(
                self.name, f"{work.total_graph_kernels} of {work.total_kernels} kernels came from graphs", True
            )
        if _is_past_the_ceiling(evidence):
            return Healthy(self.name, "batches past the largest captured size run eager; another detector judges that")
        if not evidence.is_recording and work.steps < readings.MIN_LIVE_TRACED_STEPS:
            if _without_kernels(evidence) is not None:
                return self._without_trace(evidence)
            return WarmingUp(self.name, f"{readings.MIN_LIVE_TRACED_STEPS - work.steps} more traced steps", True)
        per_step = readings.kernels_per_step(work)
        if per_step < readings.MIN_KERNELS_PER_STEP and not _is_part_of_a_step(work):
            return Healthy(self.name, f"{per_step:.0f} kernels a step: too few for launch overhead to matter", True)
        estimate = estimate_recoverable(evidence)
        if estimate is None:
            return Blind(self.name, "this tracer's stamps say nothing about gaps; trace with CUPTI or Kineto on NVIDIA")
        if estimate.severity == "none":
            return Healthy(
                self.name,
                f"eager, but little is recoverable: {readings.percent(estimate.ratio)} "
                f"({readings.percent(estimate.low)} to {readings.percent(estimate.high)})",
                True,
            )
        return self._finding(evidence, work, estimate)

    def _finding(self, evidence: Evidence, work: TracedWork, estimate: Estimate) -> Finding:
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=estimate.severity,
            title=f"No CUDA graph is used: {_launched(work)}, and the device is busy "
            f"{readings.percent(work.busy_ratio or 0)} of the time",
            evidence=(*readings.work_items(work), *readings.estimate_items(estimate)),
            estimate=estimate,
            causes=causes.eager_causes(evidence),
            remedy=causes.enable_remedy(evidence),
            votes=(
                causes.intent_vote(evidence),
                peers_vote(evidence),
                Vote("counterfactual", "for", f"{readings.percent(estimate.low)} or more of the step is recoverable"),
            ),
        )

    def _without_trace(self, evidence: Evidence) -> Verdict:
        """From dispatch counts or configuration: the cost comes from what a step must read, or is unknown.

        An unknown cost is never more than information.
        """
        steps = readings.steps_by_mode(evidence)
        total, eager = sum(steps.values()), steps.get("eager", 0)
        by_design = eager if evidence.workload.phase == "prefill" else eager_by_design(evidence.recent.dispatch)
        if total and eager - by_design < 0.95 * max(total - by_design, 0.05 * total):
            told = f", {by_design} are eager by design" if by_design else ""
            return Healthy(self.name, f"{total - eager} of {total} steps were replayed{told}", True)
        off = evidence.config is not None and evidence.config.graphs_enabled is False
        if not total and not off:
            return Blind(self.name, "neither kernels nor dispatch modes were seen; attach the probe or record a trace")
        estimate = _without_kernels(evidence) if total else None
        if estimate is None:
            role = evidence.config.role if evidence.config is not None else None
            if role in PREFILL_ROLES:
                return Healthy(self.name, f"its role is {role}, for which eager is the design", True)
            return self._unmeasured(evidence, total, eager)
        is_open = is_uncertain(estimate)
        if estimate.severity == "none" and not is_open:
            return Healthy(
                self.name,
                f"eager, and as one graph a step may take {readings.percent(1 - estimate.low)} of what it does",
                True,
            )
        vote = Vote("counterfactual", "for", f"{readings.percent(estimate.low)} or more of the step is recoverable")
        if is_open:
            vote = Vote("counterfactual", "abstains", readings.between(estimate))
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info" if is_open else estimate.severity,
            title=f"No CUDA graph is used: all {total} steps ran eager, in {(estimate.step_us or 0) / 1000:.1f} ms "
            f"each; as one graph such a step takes about {(estimate.graph_step_us or 0) / 1000:.1f} ms"
            f"{', which a trace would settle' if is_open else ''}",
            evidence=(
                EvidenceItem("eager steps", eager, "", evidence.recent.origin),
                *(size_items(evidence) if estimate.method == METHOD else ()),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=causes.eager_causes(evidence),
            remedy=(readings.TRACE_FIRST if is_open else "") + causes.enable_remedy(evidence),
            votes=(causes.intent_vote(evidence), peers_vote(evidence), vote),
        )

    def _unmeasured(self, evidence: Evidence, total: int, eager: int) -> Finding:
        why = f"all {total} steps ran eager" if total else "graphs are switched off by configuration"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"No CUDA graph is used ({why}); what that costs was not measured",
            evidence=(EvidenceItem("eager steps", eager, "", evidence.recent.origin),),
            causes=causes.eager_causes(evidence),
            remedy=readings.TRACE_FIRST + causes.enable_remedy(evidence),
            votes=(
                causes.intent_vote(evidence),
                peers_vote(evidence),
                Vote("counterfactual", "abstains", "no kernels were traced"),
            ),
        )


def _is_past_the_ceiling(evidence: Evidence) -> bool:
    """Whether most recent steps are eager for their size, in a process that has graphs."""
    dispatch = evidence.recent.dispatch
    above = (dispatch.fallbacks or {}).get("above_ceiling", 0)
    return 2 * above > sum((dispatch.steps or {}).values())


def _without_kernels(evidence: Evidence) -> Estimate | None:
    return estimate_by_own_steps(evidence) or estimate_by_roofline(evidence)


def _is_part_of_a_step(work: TracedWork) -> bool:
    """Whether a tracer that finds steps by repetition found less than one.

    A host that launches every 50 us does nothing else between them; torch.compile's default mode repeats two kernels at
    12 us each (tests/data/live/compiled_default, an H200, 2026-11-30).
    """
    return work.method == "cupti" and work.launches > 0 and work.span_ns < DENSE_LAUNCH_NS * work.launches


def _launched(work: TracedWork) -> str:
    """How much is launched by hand; a live tracer finds the shortest repeating stretch, which need not be a step."""
    if work.method == "cupti":
        return "all kernels are launched one by one"
    return f"{readings.kernels_per_step(work):.0f} kernels a step are launched one by one"
