"""A workload as a row of the fleet table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from replaywatch.collector.charts import interval_bar, mode_bar, sparkline
from replaywatch.collector.fleet import WorkloadView
from replaywatch.collector.memory import replayed_ratio
from replaywatch.contract.verdict import Estimate, Finding, Severity
from replaywatch.contract.window import Workload


@dataclass(frozen=True, slots=True)
class FleetRow:
    """What the table shows. `told` is what to say where there is no finding."""

    id: str
    workload: Workload
    word: str
    severity: Severity
    last_seen_ns: int
    spark: Markup
    replayed: float | None
    bar: Markup
    steps: Mapping[str, int] | None
    step_us: float | None
    estimate: Estimate | None
    interval: Markup
    finding: Finding | None
    told: str


def row_of(view: WorkloadView) -> FleetRow:
    """The row of a workload."""
    judgement, recent = view.judgement, view.recent
    return FleetRow(
        id=view.id,
        workload=view.workload,
        word=view.word,
        severity=view.severity,
        last_seen_ns=view.last_seen_ns,
        spark=sparkline(view.trail),
        replayed=replayed_ratio(recent),
        bar=mode_bar(recent.dispatch.steps),
        steps=recent.dispatch.steps,
        step_us=step_us(view),
        estimate=view.estimate,
        interval=interval_bar(view.estimate) if view.estimate is not None else Markup(""),
        finding=judgement.findings[0] if judgement.findings else None,
        told=_told(view),
    )


def step_us(view: WorkloadView) -> float | None:
    """Mean step time of the recent past in microseconds; the estimate's where none was timed."""
    period = view.recent.timing.steps
    if period is not None and period.mean is not None:
        return period.mean / 1000
    return view.estimate.step_us if view.estimate is not None else None


def matches(view: WorkloadView, text: str) -> bool:
    """Whether every word of a search is somewhere in who the workload is."""
    w = view.workload
    whole = " ".join(
        str(v) for v in (w.label, w.node, w.namespace, w.container, w.engine, w.model_name, w.gpu_uuid) if v
    )
    return all(word in whole.lower() for word in text.lower().split())


def _told(view: WorkloadView) -> str:
    judgement = view.judgement
    if judgement.verdict == "blind" and judgement.blind:
        return judgement.blind[0].reason
    if judgement.verdict == "warming_up" and judgement.warming_up:
        return judgement.warming_up[0].needs
    return judgement.healthy[0].because if judgement.verdict == "healthy" and judgement.healthy else ""
