"""The JSON documents that leave the collector: the API, notifications and stored findings use the same ones.

Times are RFC 3339 in UTC, ratios are in 0..1, durations carry their unit. What is unknown is null.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from typing import Final

from replaywatch.collector.fleet import WorkloadView
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Estimate, Finding
from replaywatch.contract.window import Window, Workload

SCHEMA_VERSION: Final = 1
Document = dict[str, object]


def time_text(unix_ns: int | None) -> str | None:
    """RFC 3339 with milliseconds; None for None."""
    if unix_ns is None:
        return None
    stamp = datetime.fromtimestamp(unix_ns // 10**6 / 1000, timezone.utc)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def workload_document(workload: Workload, key: str) -> Document:
    """Who a workload is."""
    return {"id": key, "label": workload.label, **asdict(workload)}


def cost_document(estimate: Estimate | None) -> Document | None:
    """What graphs would bring back."""
    if estimate is None:
        return None
    return {
        "ratio": estimate.ratio,
        "low": estimate.low,
        "high": estimate.high,
        "step_us": estimate.step_us,
        "graph_step_us": estimate.graph_step_us,
        "saved_us": estimate.saved_us,
        "method": estimate.method,
        "is_recoverable": estimate.is_recoverable,
    }


def finding_document(finding: Finding) -> Document:
    """A finding with its cost, causes, remedy, evidence and votes."""
    return {
        "detector": finding.detector,
        "subject": finding.subject,
        "severity": finding.severity,
        "title": finding.title,
        "is_fault": finding.is_fault,
        "cost": cost_document(finding.estimate),
        "causes": [asdict(c) for c in finding.causes],
        "remedy": finding.remedy,
        "evidence": [asdict(e) for e in finding.evidence],
        "votes": [asdict(v) for v in finding.votes],
    }


def snapshot_document(snapshot: Fingerprint | EngineConfig | None) -> Document | None:
    """A configuration or fingerprint."""
    return None if snapshot is None else {"id": snapshot.id, **asdict(snapshot)}


def window_document(window: Window) -> Document:
    """The figures that people ask of a window."""
    period = window.timing.steps
    traced = window.traced
    return {
        "start": time_text(window.start_ns),
        "end": time_text(window.end_ns),
        "steps": None if window.dispatch.steps is None else dict(window.dispatch.steps),
        "fallbacks": None if window.dispatch.fallbacks is None else dict(window.dispatch.fallbacks),
        "step_us": None if period is None or period.mean is None else period.mean / 1000,
        "kernel_coverage": None if traced is None else traced.coverage,
        "gpu_busy_ratio": None if traced is None else traced.busy_ratio,
        "pool_bytes": window.memory.pool_bytes,
    }


def view_document(view: WorkloadView) -> Document:
    """A workload with its verdict, in full."""
    judgement = view.judgement
    return {
        "workload": workload_document(view.workload, view.id),
        "verdict": judgement.verdict,
        "severity": view.severity,
        "is_stale": view.is_stale,
        "first_seen": time_text(view.first_seen_ns),
        "last_seen": time_text(view.last_seen_ns),
        "cost": cost_document(view.estimate),
        "recent": window_document(view.recent),
        "lifetime": window_document(view.lifetime),
        "findings": [finding_document(f) for f in judgement.findings],
        "healthy": [asdict(v) for v in judgement.healthy],
        "warming_up": [asdict(v) for v in judgement.warming_up],
        "blind": [asdict(v) for v in judgement.blind],
        "config": snapshot_document(view.config),
        "fingerprint": snapshot_document(view.fingerprint),
    }
