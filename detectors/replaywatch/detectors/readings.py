"""Readings that several detectors take from evidence, as evidence items with unit and source."""

from __future__ import annotations

from replaywatch.contract.verdict import Estimate, EvidenceItem
from replaywatch.contract.window import TracedWork, Window
from replaywatch.detectors.evidence import Evidence

# Below this many kernels a step there is little launch overhead to remove; a persistent kernel is one example.
MIN_KERNELS_PER_STEP = 20
# A live workload is judged after this many traced steps; a recording is judged on what it has.
MIN_LIVE_TRACED_STEPS = 5
MIN_LIVE_STEPS = 50
# Recent steps whose share of full replays is this far from the lifetime's are not those that were traced before.
OTHER_STEPS_RATIO = 0.2
TRACE_FIRST = "Record a short trace to learn what it costs, or trace kernels on one replica. "


def traced(evidence: Evidence) -> TracedWork | None:
    """The traced work to judge: of the recent horizon, else of the lifetime.

    None when nothing was traced, or only before the process began to dispatch its steps in another way.
    """
    if evidence.recent.traced is not None or evidence.lifetime.traced is None:
        return evidence.recent.traced
    recent, lived = full_ratio(evidence.recent), full_ratio(evidence.lifetime)
    changed = recent is not None and lived is not None and abs(recent - lived) > OTHER_STEPS_RATIO
    return None if changed else evidence.lifetime.traced


def full_ratio(window: Window) -> float | None:
    """Share of full replays among a window's steps; None where no source counts enough of them."""
    steps = window.dispatch.steps or {}
    total = sum(steps.values())
    return steps.get("full", 0) / total if total >= MIN_LIVE_STEPS else None


def steps_by_mode(evidence: Evidence) -> dict[str, int]:
    """Recent steps by dispatch mode; empty when no source counts them."""
    window = evidence.recent if evidence.recent.dispatch.steps else evidence.lifetime
    return {mode: n for mode, n in (window.dispatch.steps or {}).items() if n}


def kernels_per_step(work: TracedWork) -> float:
    """Mean kernels of a clean step; of the whole stretch when no step was found."""
    return work.kernels / work.steps if work.steps else float(work.total_kernels)


def work_items(work: TracedWork) -> list[EvidenceItem]:
    """What a trace showed: coverage, busy share, kernels, launches."""
    items = [
        EvidenceItem("graph kernels", work.total_graph_kernels, "", work.method),
        EvidenceItem("kernels", work.total_kernels, "", work.method),
    ]
    if (coverage := work.coverage) is not None:
        items.append(EvidenceItem("kernel coverage", round(coverage, 4), "ratio", work.method))
    if (busy := work.busy_ratio) is not None:
        items.append(EvidenceItem("device busy", round(busy, 4), "ratio", work.method))
    if work.steps:
        items.append(EvidenceItem("traced steps", work.steps, "", work.method))
        items.append(EvidenceItem("kernels per step", round(work.kernels / work.steps, 1), "", work.method))
        items.append(EvidenceItem("launches per step", round(work.launches / work.steps, 1), "", work.method))
        items.append(
            EvidenceItem("graph launches per step", round(work.graph_launches / work.steps, 2), "", work.method)
        )
        items.append(EvidenceItem("traced step", round(work.span_ns / work.steps / 1000, 1), "us", work.method))
    return items


def between_forwards_ns(evidence: Evidence) -> float | None:
    """What usually lies between the end of a forward and the next one's dispatch, where an adapter times it."""
    times = evidence.recent.timing.between_forwards
    return times.quantile(0.5) if times is not None and times.count >= MIN_LIVE_STEPS else None


def between_forwards_items(evidence: Evidence) -> list[EvidenceItem]:
    """The same as evidence, where it is known."""
    ns = between_forwards_ns(evidence)
    return (
        [] if ns is None else [EvidenceItem("between two forwards", round(ns / 1000, 1), "us", evidence.recent.origin)]
    )


def estimate_items(estimate: Estimate) -> list[EvidenceItem]:
    """What the counterfactual says."""
    items = [
        EvidenceItem("recoverable share", round(estimate.ratio, 4), "ratio", estimate.method),
        EvidenceItem("recoverable share, low end", round(estimate.low, 4), "ratio", estimate.method),
        EvidenceItem("recoverable share, high end", round(estimate.high, 4), "ratio", estimate.method),
    ]
    if estimate.step_us is not None:
        items.append(EvidenceItem("step without tracer", round(estimate.step_us, 1), "us", estimate.method))
    if estimate.graph_step_us is not None:
        items.append(EvidenceItem("step as one graph", round(estimate.graph_step_us, 1), "us", estimate.method))
    return items


def window_seconds(window: Window) -> float:
    """Length of a window in seconds."""
    return max(0.0, (window.end_ns - window.start_ns) / 1e9)


def times(count: int) -> str:
    """A count for people: once, 36 times."""
    return "once" if count == 1 else f"{count} times"


def percent(ratio: float) -> str:
    """A ratio for people: 2.2 %, 45 %."""
    value = ratio * 100
    return f"{value:.1f} %" if value < 10 else f"{value:.0f} %"


def between(estimate: Estimate) -> str:
    """An estimate's interval for people."""
    return f"{percent(estimate.low)} to {percent(estimate.high)} of the step is recoverable"
