"""The counterfactual (R3): what would a step take if its work were captured and replayed?

    T_graph    = union of device work + kernels that can only follow one another x in-graph gap + host work that stays
    T_observed = the traced step, the tracer's own cost taken out, but no less than the device needs for eager work
    rho        = 1 - T_graph / T_observed

It needs one traced stretch and no history. The interval carries the tracer's cost (M23), the gap, and the spread of
the steps. Source: M13 met a measured truth within 1.7 %; docs/estimate.md has the error on the labelled corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from replaywatch.contract.verdict import Estimate
from replaywatch.contract.window import TracedWork
from replaywatch.detectors.calibration import (
    EAGER_QUEUED_GAP_NS,
    GRAPH_GAP_NS,
    TRACER_COSTS,
)
from replaywatch.detectors.evidence import Evidence

MIN_KERNELS_PER_STEP = 20


@dataclass(frozen=True, slots=True)
class StepModel:
    """Means per clean step, nanoseconds and counts, from which the estimate is made."""

    traced_ns: float
    busy_ns: float
    tracer_ns: float
    host_fixed_ns: float
    eager_kernels: float
    graph_kernels: float
    chain_kernels: float
    spread: float

    @property
    def kernels(self) -> float:
        """Kernels of a step."""
        return self.eager_kernels + self.graph_kernels


def model_step(work: TracedWork) -> StepModel | None:
    """The mean clean step of some traced work; None without steps or device work."""
    if not work.steps or not work.span_ns or not work.busy_ns:
        return None
    n = work.steps
    cost = TRACER_COSTS[work.method]
    tracer_ns = (
        work.cpu_ops * cost.cpu_op_ns
        + work.python_calls * cost.python_call_ns
        + work.runtime_calls * cost.runtime_call_ns
        + work.graph_kernels * cost.node_ns
    ) / n
    mean_ns = work.span_ns / n
    variance = max(0.0, work.span_sq_ns2 / n - mean_ns * mean_ns)
    return StepModel(
        traced_ns=mean_ns,
        busy_ns=work.busy_ns / n,
        tracer_ns=tracer_ns,
        host_fixed_ns=(work.host_fixed_ns or 0) / n,
        eager_kernels=work.eager_kernels / n,
        graph_kernels=work.graph_kernels / n,
        chain_kernels=(work.chain_kernels or work.kernels) / n,
        spread=sqrt(variance) / mean_ns / sqrt(n),
    )


def observed_ns(step: StepModel, tracer_share: float = 1.0, queued_gap_ns: float = EAGER_QUEUED_GAP_NS) -> float:
    """Step time without the tracer: its cost taken out, but no less than the device needs for the same eager work."""
    eager_share = step.eager_kernels / step.kernels if step.kernels else 0.0
    gaps_ns = step.chain_kernels * (eager_share * queued_gap_ns + (1 - eager_share) * GRAPH_GAP_NS)
    device_ns = min(step.traced_ns, step.busy_ns + gaps_ns)
    return max(device_ns, step.traced_ns - step.tracer_ns * tracer_share)


def captured_ns(step: StepModel, observed: float, gap_ns: float = GRAPH_GAP_NS) -> float:
    """Step time if everything were one graph; host work that stays shrinks with the tracer's cost."""
    host_ns = step.host_fixed_ns * min(1.0, observed / step.traced_ns)
    return step.busy_ns + step.chain_kernels * gap_ns + host_ns


def _ratio(step: StepModel, tracer_share: float, gap_ns: float, queued_gap_ns: float) -> float:
    observed = observed_ns(step, tracer_share, queued_gap_ns)
    return max(0.0, 1.0 - captured_ns(step, observed, gap_ns) / observed)


def estimate_work(work: TracedWork) -> Estimate | None:
    """The recoverable share of some traced work; None where it says nothing about gaps or has no steps."""
    step = model_step(work)
    if step is None or not work.gaps_are_evidence:
        return None
    doubt = TRACER_COSTS[work.method].uncertainty
    ratio = _ratio(step, 1.0, GRAPH_GAP_NS, EAGER_QUEUED_GAP_NS)
    low = _ratio(step, 1.0 + doubt, GRAPH_GAP_NS * 1.4, EAGER_QUEUED_GAP_NS * 0.7)
    high = _ratio(step, max(0.0, 1.0 - doubt), GRAPH_GAP_NS * 0.7, EAGER_QUEUED_GAP_NS * 1.3)
    observed = observed_ns(step)
    noise = 2 * step.spread * (1 - ratio)
    return Estimate(
        ratio=ratio,
        low=max(0.0, min(low, ratio - noise)),
        high=min(1.0, max(high, ratio + noise)),
        step_us=observed / 1000,
        graph_step_us=captured_ns(step, observed) / 1000,
    )


def estimate_recoverable(evidence: Evidence) -> Estimate | None:
    """The recoverable share of a workload's step time, from its recent traced work; None when nothing was traced."""
    work = evidence.recent.traced or evidence.lifetime.traced
    return None if work is None else estimate_work(work)
