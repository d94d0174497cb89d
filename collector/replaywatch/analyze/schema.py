"""The JSON form of a report: `schema_version` 1, described in docs/analyze-json.md.

Fields are only added within a version. Numbers that were not measured are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from replaywatch.analyze.result import Report, Result
from replaywatch.contract.verdict import Estimate, EvidenceItem, Finding
from replaywatch.contract.window import TracedWork, Window

SCHEMA_VERSION: Final = 1


def report_json(report: Report) -> dict[str, Any]:
    """A report as JSON values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "results": [result_json(r) for r in report.results],
        "errors": [asdict(u) for u in report.unreadable],
    }


def result_json(result: Result) -> dict[str, Any]:
    """One workload as JSON values."""
    judgement, work = result.judgement, result.window.traced
    estimate = judgement.estimate or next((f.estimate for f in judgement.findings if f.estimate), None)
    return {
        "source": result.source,
        "kind": result.kind,
        "workload": workload_json(result.window),
        "verdict": judgement.verdict,
        "severity": judgement.severity,
        "recoverable_ratio": estimate_json(estimate),
        "step_us": step_us(result),
        "graph_step_us": _rounded(estimate.graph_step_us, 1) if estimate else None,
        "steps": result.window.steps,
        "kernel_coverage": _rounded(work.coverage, 4) if work else None,
        "gpu_busy_ratio": _rounded(work.busy_ratio, 4) if work else None,
        "modes": dict(result.window.dispatch.steps) if result.window.dispatch.steps else None,
        "traced": traced_json(work),
        "config": _config_json(result),
        "fingerprint": _present(asdict(result.fingerprint)) if result.fingerprint else None,
        "findings": [finding_json(f) for f in judgement.findings],
        "healthy": [asdict(h) for h in judgement.healthy],
        "warming_up": [asdict(w) for w in judgement.warming_up],
        "blind": [asdict(b) for b in judgement.blind] + [_blind_spot(s.signal, s.reason) for s in result.window.blind],
    }


def workload_json(window: Window) -> dict[str, Any]:
    """Who: the fields that are known, and a label for people."""
    return {"label": window.workload.label, **_present(asdict(window.workload))}


def step_us(result: Result) -> float | None:
    """Step time without tracer where the estimate knows it, else the measured period."""
    estimate = result.judgement.estimate
    if estimate is not None and estimate.step_us is not None:
        return round(estimate.step_us, 1)
    period = result.window.timing.steps
    median = period.quantile(0.5) if period is not None else None
    return round(median / 1000, 1) if median is not None else None


def traced_json(work: TracedWork | None) -> dict[str, Any] | None:
    """What a trace showed, per clean step where that is the natural form."""
    if work is None:
        return None
    steps = work.steps or None
    return {
        "method": work.method,
        "has_cpu_events": work.has_cpu_events,
        "steps": work.steps,
        "skipped_steps": work.skipped_steps,
        "kernels": work.total_kernels,
        "graph_kernels": work.total_graph_kernels,
        "traced_step_us": round(work.span_ns / steps / 1000, 1) if steps else None,
        "device_us_per_step": round(work.busy_ns / steps / 1000, 1) if steps else None,
        "launches_per_step": round(work.launches / steps, 2) if steps else None,
        "graph_launches_per_step": round(work.graph_launches / steps, 2) if steps else None,
        "unmatched_kernels": work.unmatched_kernels,
        "dropped_records": work.dropped_records,
    }


def estimate_json(estimate: Estimate | None) -> dict[str, float] | None:
    """An interval as {estimate, low, high}."""
    if estimate is None:
        return None
    return {"estimate": round(estimate.ratio, 4), "low": round(estimate.low, 4), "high": round(estimate.high, 4)}


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding; `cause` is the first of `causes`."""
    return {
        "detector": finding.detector,
        "severity": finding.severity,
        "is_fault": finding.is_fault,
        "title": finding.title,
        "cause": finding.causes[0].text if finding.causes else None,
        "causes": [asdict(c) for c in finding.causes],
        "remedy": finding.remedy,
        "recoverable_ratio": estimate_json(finding.estimate),
        "saved_us": _rounded(finding.estimate.saved_us, 1) if finding.estimate else None,
        "evidence": [evidence_json(e) for e in finding.evidence],
        "votes": [asdict(v) for v in finding.votes],
    }


def evidence_json(item: EvidenceItem) -> dict[str, Any]:
    """One number with unit and source."""
    return asdict(item)


def _blind_spot(signal: str, reason: str) -> dict[str, str]:
    return {"detector": signal, "reason": reason}


def _config_json(result: Result) -> dict[str, Any] | None:
    return _present(asdict(result.config)) if result.config is not None else None


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items() if v not in (None, {}, ())}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
