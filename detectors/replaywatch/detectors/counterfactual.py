"""The counterfactual (R3): what would a step take if its work were captured and replayed?

    T_graph    = union of device work + kernels that can only follow one another x in-graph gap + host work that stays
    T_observed = the traced step, the tracer's own cost taken out, but no less than the device needs for eager work
    rho        = 1 - T_graph / T_observed

It needs one traced stretch and no history. The interval carries the tracer's cost (M23), the gap, the device's own
variation and the spread of the steps. Where the probe itself timed many more steps than were traced, and they are the
same steps, T_observed is what it timed, and the tracer's cost is no longer in doubt. Source: M13 met a measured truth
within 1.7 %; docs/estimate.md has the error on the labelled corpus.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

from replaywatch.contract.histogram import merge_histograms
from replaywatch.contract.verdict import Estimate
from replaywatch.contract.window import TracedWork, Window
from replaywatch.detectors import calibration as cost
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.figures import spread_of, usual_step_of
from replaywatch.detectors.readings import traced
from replaywatch.detectors.roofline import estimate_by_roofline

FULL_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class StepModel:
    """Means per clean step, nanoseconds and counts, from which the estimate is made.

    `host_tracer_ns` and `device_tracer_ns` are what the tracer added on either side; `spread` the relative error of the
    mean period.
    """

    traced_ns: float
    busy_ns: float
    host_tracer_ns: float
    device_tracer_ns: float
    fixed_ns: float
    stall_ns: float
    launches: float
    eager_kernels: float
    graph_kernels: float
    chain_kernels: float
    removable_copy_ns: float
    waits: bool
    is_replayed: bool
    spread: float

    @property
    def coverage(self) -> float:
        """Share of the step's kernels that graphs hold."""
        kernels = self.eager_kernels + self.graph_kernels
        return self.graph_kernels / kernels if kernels else 0.0


def slowness(work: TracedWork) -> float:
    """How much slower than the reference host the traced process launched, from the length of its launch calls."""
    if work.launches < 1 or not work.launch_call_ns or work.method not in ("kineto", "roctracer"):
        return 1.0
    mean_ns = work.launch_call_ns / work.launches
    low, high = cost.SLOWNESS_RANGE
    relative = (mean_ns - cost.FIXED_LAUNCH_NS) / (cost.REFERENCE_LAUNCH_NS - cost.FIXED_LAUNCH_NS)
    return min(high, max(low, relative))


def model_step(work: TracedWork, *, replays_in_full: bool = False) -> StepModel | None:
    """The mean clean step of some traced work; None without steps or device work.

    `replays_in_full`: the process itself counts its steps as full replays, so kernels outside graphs are what surrounds
    the replay. Where the trace does not tell waits for the device, such a step is taken to have them.
    """
    if not work.steps or not work.span_ns or not work.busy_ns:
        return None
    n, tracer = work.steps, cost.TRACER_COSTS[work.method]
    events_ns = (
        work.cpu_ops * tracer.cpu_op_ns
        + work.python_calls * tracer.python_call_ns
        + work.runtime_calls * tracer.runtime_call_ns
        + work.launches * tracer.launch_ns
    ) / n
    mean_ns = work.span_ns / n
    copies_ns = min(work.input_copy_ns, work.busy_ns) / n
    variance = max(0.0, work.span_sq_ns2 / n - mean_ns * mean_ns)
    return StepModel(
        traced_ns=mean_ns,
        busy_ns=work.busy_ns / n,
        host_tracer_ns=min(cost.MOST_TRACER_SHARE * mean_ns, events_ns * slowness(work)),
        device_tracer_ns=work.graph_kernels * tracer.node_ns / n,
        fixed_ns=(work.host_fixed_ns or 0) / n,
        stall_ns=(work.host_stall_ns or 0) / n,
        launches=work.launches / n,
        eager_kernels=work.eager_kernels / n,
        graph_kernels=work.graph_kernels / n,
        chain_kernels=(work.chain_kernels or work.kernels) / n,
        removable_copy_ns=copies_ns if copies_ns >= cost.REMOVABLE_COPY_SHARE * mean_ns else 0.0,
        waits=replays_in_full if work.sync_ns is None else work.sync_ns > 0.01 * work.span_ns,
        is_replayed=replays_in_full or work.graph_kernels >= cost.MOSTLY_REPLAYED * max(1, work.kernels),
        spread=sqrt(variance) / mean_ns / sqrt(n),
    )


def device_ns(step: StepModel, *, eager_gap_ns: float, close_ranks: float) -> float:
    """What the device needs for the step as it is dispatched, if the host never keeps it waiting."""
    gap_ns = step.coverage * cost.GRAPH_GAP_NS + (1 - step.coverage) * eager_gap_ns
    return step.busy_ns * (1 + close_ranks) + step.chain_kernels * gap_ns


def observed_ns(step: StepModel, *, host_factor: float = 1.0) -> float:
    """Step time without the tracer, no less than the device needs. `host_factor` scales what the host is left with."""
    replayed_ns = step.traced_ns - min(step.device_tracer_ns, 0.5 * step.traced_ns)
    host_ns = (replayed_ns - min(step.host_tracer_ns, cost.MOST_TRACER_SHARE * replayed_ns)) * host_factor
    least_ns = device_ns(step, eager_gap_ns=cost.EAGER_QUEUED_GAP_NS, close_ranks=cost.CLOSE_RANKS_RATIO)
    return max(host_ns, min(replayed_ns, least_ns))


def captured_ns(step: StepModel, observed: float, *, close_ranks: float = cost.CLOSE_RANKS_RATIO) -> float:
    """Step time if everything were one graph that finds its inputs in place.

    Host work that stays shrinks with the tracer's cost. Where graphs hold the step already and the host waits for the
    device, what the host does then (sampling, stopping rules) is not one more graph: only its launches are.
    """
    busy_ns = step.busy_ns - step.removable_copy_ns
    graph_ns = busy_ns * (1 + close_ranks) + step.chain_kernels * cost.GRAPH_GAP_NS
    if step.is_replayed and step.waits:
        return max(min(graph_ns, observed), observed - step.launches * cost.LAUNCH_NS)
    serial_ns = graph_ns + step.fixed_ns * min(1.0, observed / step.traced_ns)
    return serial_ns + step.stall_ns if step.waits else max(serial_ns, step.stall_ns)


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """Steps that the process timed without a tracer: their usual length, and its relative doubt."""

    step_ns: float
    doubt: float


def _ratio(step: StepModel, timed: TimedSteps | None, host_doubt: float, close_ranks: float) -> float:
    """The recoverable share when the host's part of the step, or the whole timed one, is longer by a relative doubt."""
    observed = observed_ns(step, host_factor=1.0 + host_doubt) if timed is None else timed.step_ns * (1.0 + host_doubt)
    return min(1.0, max(0.0, 1.0 - captured_ns(step, observed, close_ranks=close_ranks) / observed))


def estimate_work(
    work: TracedWork, *, replays_in_full: bool = False, timed: TimedSteps | None = None
) -> Estimate | None:
    """The recoverable share of some traced work; None where it says nothing about gaps or has no steps."""
    step = model_step(work, replays_in_full=replays_in_full)
    if step is None or not work.gaps_are_evidence:
        return None
    timed = timed if timed is not None and _are_the_traced(timed, step, work) else None
    doubt = cost.TRACER_COSTS[work.method].doubt + step.spread if timed is None else timed.doubt
    device_doubt = cost.CLOSE_RANKS_DOUBT if timed is None else cost.TIMED_DEVICE_DOUBT
    ratio = _ratio(step, timed, 0.0, cost.CLOSE_RANKS_RATIO)
    low = _ratio(step, timed, -doubt, cost.CLOSE_RANKS_RATIO + device_doubt)
    high = _ratio(step, timed, doubt, cost.CLOSE_RANKS_RATIO - device_doubt)
    observed = observed_ns(step) if timed is None else timed.step_ns
    return Estimate(
        ratio=ratio,
        low=max(0.0, min(low, ratio - cost.LEAST_DOUBT)),
        high=min(1.0, max(high, ratio + cost.LEAST_DOUBT)),
        step_us=observed / 1000,
        graph_step_us=captured_ns(step, observed) / 1000,
    )


def _are_the_traced(timed: TimedSteps, step: StepModel, work: TracedWork) -> bool:
    """Whether timed and traced steps can be the same: a tracer that finds steps by repetition may find half a step."""
    low, high = cost.SAME_STEP_RANGE
    least = min(low, 1.0 - cost.MOST_TRACER_SHARE) if cost.TRACER_COSTS[work.method].cpu_op_ns else low
    return least * step.traced_ns <= timed.step_ns <= high * step.traced_ns


def timed_steps(window: Window) -> TimedSteps | None:
    """The steps that the probe timed itself, all modes together; None where they are few beside the traced ones."""
    work, timing = window.traced, window.timing
    if window.origin != "probe" or work is None:
        return None
    periods = merge_histograms((timing.step_by_mode or {}).values()) or timing.step_period
    if periods is None or periods.count < cost.TIMED_STEPS_RATIO * max(1, work.steps + work.skipped_steps):
        return None
    usual_us, _ = usual_step_of(periods)
    if usual_us is None:
        return None
    return TimedSteps(1000 * usual_us, min(0.5, max(cost.LEAST_TIMED_DOUBT, spread_of(periods))))


def replays_in_full(evidence: Evidence) -> bool:
    """Whether the process counts nine in ten of its recent steps as full replays."""
    steps = evidence.recent.dispatch.steps or {}
    total = sum(steps.values())
    return total > 0 and steps.get("full", 0) >= FULL_SHARE * total


def estimate_recoverable(evidence: Evidence) -> Estimate | None:
    """The recoverable share of a workload's step time, from its recent traced work, else from what a step must read.

    None where neither is known.
    """
    work = traced(evidence)
    if work is None:
        return estimate_by_roofline(evidence)
    window = evidence.recent if evidence.recent.traced is not None else evidence.lifetime
    in_full = replays_in_full(evidence)
    estimate = estimate_work(work, replays_in_full=in_full, timed=timed_steps(window))
    if estimate is None or in_full or evidence.is_recording:
        return estimate
    return _with_what_no_kernel_shows(estimate, evidence)


def _with_what_no_kernel_shows(estimate: Estimate, evidence: Evidence) -> Estimate:
    """A live engine's host works between steps as well (scheduling, sampling, output), and a graph does not end that.

    Where the model's sizes are known the likelier of two graph steps is the longer one: what the device did, and what
    reading takes with the usual cost of a layer, host included.
    """
    by_reading = estimate_by_roofline(evidence)
    if by_reading is None:
        return estimate
    ratio = min(estimate.ratio, by_reading.ratio)
    low = min(ratio, estimate.low, max(by_reading.low, by_reading.ratio - cost.READING_DOUBT))
    high = max(ratio, min(estimate.high, by_reading.high))
    longer = max(estimate.graph_step_us or 0.0, by_reading.graph_step_us or 0.0)
    return replace(estimate, ratio=ratio, low=low, high=high, graph_step_us=longer)
