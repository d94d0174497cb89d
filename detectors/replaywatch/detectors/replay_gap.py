"""Everything is replayed, yet the device waits between replays (D9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from replaywatch.contract.verdict import (
    Blind,
    Cause,
    Estimate,
    EvidenceItem,
    Finding,
    Healthy,
    Severity,
    Verdict,
    Vote,
)
from replaywatch.contract.window import TracedWork
from replaywatch.detectors import readings
from replaywatch.detectors.calibration import GRAPH_GAP_NS, MOSTLY_REPLAYED
from replaywatch.detectors.counterfactual import StepModel, model_step, observed_ns, replays_in_full
from replaywatch.detectors.evidence import Evidence

FAULT_SHARE: Final = 0.5
WARN_SHARE: Final = 0.6
MOST_OF_A_GAP: Final = 0.6


@dataclass(frozen=True, slots=True)
class Idle:
    """Device idle of a mean step without tracer, nanoseconds; `stall_ns` of it while the host waited for no device."""

    step_ns: float
    idle_ns: float
    stall_ns: float

    @property
    def is_input_stall(self) -> bool:
        """Whether most of it is the host waiting for something else, such as the next input."""
        return self.stall_ns > 0.5 * self.idle_ns


class ReplayGap:
    """Graphs hold the kernels, but host work around the replays leaves the device idle.

    Graphs cannot bring this time back: it is a warning from WARN_SHARE of the step on and information below; a small
    model behind a Python scheduler loses a third this way in perfect health (vLLM 0.25.1, 1.1B parameters, H200: 37 to
    47 %). A host that waits for its input (a data loader) is information however long it takes.

    Bad at: it cannot tell planning that could overlap from planning that needs the step's result; idle stretches
    without requests are left out of traces, short ones are not.
    """

    name: ClassVar[str] = "replay_gap"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        work = readings.traced(evidence)
        if work is None or not work.steps or not work.gaps_are_evidence:
            return self._from_timed_replays(evidence)
        in_full = replays_in_full(evidence)
        if not work.graph_launches or not (in_full or (work.coverage or 0.0) >= MOSTLY_REPLAYED):
            return Healthy(self.name, "the step is not mostly replayed; other detectors judge it")
        idle = _idle(work, in_full)
        if idle is None:
            return Blind(self.name, "no device work was traced")
        share = idle.idle_ns / idle.step_ns
        estimate = Estimate(
            share,
            0.7 * share,
            min(1.0, 1.2 * share),
            idle.step_ns / 1000,
            method="idle around replays",
            is_recoverable=False,
        )
        if estimate.severity == "none":
            return Healthy(self.name, f"the device waits {readings.percent(share)} of the step around replays")
        return self._finding(evidence, work, idle, estimate)

    def _from_timed_replays(self, evidence: Evidence) -> Verdict:
        """Without a trace: idle between timed replays, where a step is one replay and nothing runs beside it."""
        figures, replays = evidence.figures, evidence.recent.dispatch.replays
        if figures.gap_us is None or not figures.step_us or not figures.steps or not replays:
            return Blind(self.name, "no steps with usable stamps were traced, and no gaps between replays timed")
        if figures.unreplayed_ratio != 0.0 or not 0.8 <= replays / figures.steps <= 1.5:
            return Blind(self.name, "without a trace, gaps are judged only where each step is one replay")
        share = min(1.0, figures.gap_us / figures.step_us)
        estimate = Estimate(
            share, 0.7 * share, share, figures.step_us, method="idle between timed replays", is_recoverable=False
        )
        if estimate.severity == "none":
            return Healthy(self.name, f"the device waits {readings.percent(share)} of the step between replays")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="warn" if share >= WARN_SHARE else "info",
            title=f"Every step is replayed, yet the device waits {readings.percent(share)} of it between replays",
            evidence=(
                EvidenceItem("idle between replays", round(figures.gap_us, 1), "us", evidence.recent.origin),
                EvidenceItem("step", round(figures.step_us, 1), "us", evidence.recent.origin),
                *readings.between_forwards_items(evidence),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=_causes_by_the_host(evidence, figures.step_us, figures.gap_us),
            remedy=_PLAN,
            votes=(Vote("counterfactual", "for", "the idle time was seen on the device"),),
            is_fault=share >= FAULT_SHARE,
        )

    def _finding(self, evidence: Evidence, work: TracedWork, idle: Idle, estimate: Estimate) -> Finding:
        is_fault = not idle.is_input_stall and estimate.ratio >= FAULT_SHARE
        severity: Severity = "warn" if is_fault and estimate.ratio >= WARN_SHARE else "info"
        what = "for the host's input" if idle.is_input_stall else "for the host between replays"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=(
                f"Graphs hold {readings.percent(work.coverage or 0)} of the kernels, yet the device waits "
                f"{readings.percent(estimate.ratio)} of each step {what}"
            ),
            evidence=(
                EvidenceItem("idle per step", round(idle.idle_ns / 1000, 1), "us", work.method),
                EvidenceItem("replays per step", round(work.graph_launches / work.steps, 2), "", work.method),
                *readings.work_items(work),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=_causes(work, idle),
            remedy=_STALL if idle.is_input_stall else _PLAN,
            votes=(Vote("counterfactual", "for", "the idle time was seen on the device"),),
            is_fault=is_fault,
        )


def _causes_by_the_host(evidence: Evidence, step_us: float, gap_us: float) -> tuple[Cause, ...]:
    """Where the host spends the gap, if only one side can hold most of it.

    Between two forwards an engine may wait for the replay itself, so that only what is left of it then is the host's.
    """
    somewhere = Cause("work on the host between replays (planning, sampling)", 0.5, "gaps between timed replays")
    between_ns = readings.between_forwards_ns(evidence)
    if between_ns is None:
        return (somewhere,)
    between_us = between_ns / 1000
    outside_us, inside_us = between_us - (step_us - gap_us), step_us - between_us
    because = f"{between_us / 1000:.2g} of {step_us / 1000:.2g} ms lie between two forwards"
    is_outside, is_inside = (us >= MOST_OF_A_GAP * gap_us for us in (outside_us, inside_us))
    if is_outside and not is_inside:
        return (Cause("the host's work between two forwards: scheduling, sampling, outputs", 0.8, because),)
    if is_inside and not is_outside:
        return (Cause("the host's work inside the forward, around the replay", 0.6, because),)
    return (somewhere,)


_PLAN = (
    "Shorten or overlap what the host does between replays: plan the next step while this one runs, avoid reading "
    "results back each step, or capture fewer, larger graphs."
)
_STALL = "Prepare the next input while this step runs (more loader workers, prefetch, pinned memory); graphs are fine."


def _idle(work: TracedWork, in_full: bool) -> Idle | None:
    step = model_step(work, replays_in_full=in_full)
    if step is None:
        return None
    step_ns = observed_ns(step)
    return Idle(step_ns, max(0.0, step_ns - _device_ns(step)), min(step.stall_ns, step_ns))


def _device_ns(step: StepModel) -> float:
    return step.busy_ns + step.chain_kernels * GRAPH_GAP_NS


def _causes(work: TracedWork, idle: Idle) -> tuple[Cause, ...]:
    found = []
    if idle.is_input_stall:
        found.append(
            Cause(
                "the host waits for something that is not the device: a data loader, a queue, a lock",
                0.7,
                "long stretches without launches or waits",
            )
        )
    if work.host_fixed_ns and work.host_fixed_ns > 0.4 * idle.idle_ns * work.steps:
        found.append(Cause("the host waits for the device, then plans the next step", 0.8, "time from wait to launch"))
    if work.graph_launches > 10 * work.steps:
        replays = work.graph_launches / work.steps
        found.append(Cause("the step is cut into many small graphs", 0.7, f"{replays:.0f} replays a step"))
    found.append(Cause("work on the host between replays (planning, sampling)", 0.4, "idle device"))
    return tuple(found)
