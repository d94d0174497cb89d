"""All detectors over one workload's evidence, put together as one `Judgement`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from replaywatch.contract.verdict import (
    Blind,
    Estimate,
    Finding,
    Healthy,
    Severity,
    Verdict,
    WarmingUp,
    severity_rank,
)
from replaywatch.contract.window import Workload
from replaywatch.detectors.catalogue import DETECTORS
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.evidence import Evidence

VerdictWord = Literal["healthy", "finding", "warming_up", "blind"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be said of a workload: one word, the worst severity, and everything behind it, worst first."""

    workload: Workload
    verdict: VerdictWord
    severity: Severity
    findings: tuple[Finding, ...]
    healthy: tuple[Healthy, ...]
    warming_up: tuple[WarmingUp, ...]
    blind: tuple[Blind, ...]
    estimate: Estimate | None


def judge(evidence: Evidence) -> Judgement:
    """The judgement on one workload; pure."""
    verdicts = [detector.judge(evidence) for detector in DETECTORS]
    findings = _sorted_findings(verdicts)
    word, severity = _overall(verdicts, findings)
    return Judgement(
        workload=evidence.workload,
        verdict=word,
        severity=severity,
        findings=findings,
        healthy=tuple(v for v in verdicts if isinstance(v, Healthy)),
        warming_up=tuple(v for v in verdicts if isinstance(v, WarmingUp)),
        blind=tuple(v for v in verdicts if isinstance(v, Blind)),
        estimate=_recoverable(estimate_recoverable(evidence), findings),
    )


def _recoverable(counterfactual: Estimate | None, findings: tuple[Finding, ...]) -> Estimate | None:
    """The largest share that a fault vouches for; the counterfactual's where no fault knows more."""
    costs = [f.estimate for f in findings if f.is_fault and f.estimate and f.estimate.is_recoverable]
    if counterfactual is not None:
        costs.insert(0, counterfactual)
    return max(costs, key=lambda e: e.low, default=None)


def _sorted_findings(verdicts: list[Verdict]) -> tuple[Finding, ...]:
    findings = [v for v in verdicts if isinstance(v, Finding)]
    return tuple(sorted(findings, key=lambda f: (-severity_rank(f.severity), not f.is_fault, f.detector)))


def _overall(verdicts: list[Verdict], findings: tuple[Finding, ...]) -> tuple[VerdictWord, Severity]:
    """One word: faults first; healthy only where something decisive was seen and nothing decisive is missing."""
    faults = [f for f in findings if f.is_fault and f.severity != "none"]
    if faults:
        return "finding", max((f.severity for f in faults), key=severity_rank)
    told: Severity = "info" if any(f.severity != "none" for f in findings) else "none"
    if any(isinstance(v, WarmingUp) and v.decisive for v in verdicts):
        return "warming_up", told
    if any(isinstance(v, Healthy) and v.decisive for v in verdicts):
        return "healthy", told
    return "blind", told
