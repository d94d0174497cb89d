"""All detectors over one workload's evidence, put together as one `Judgement`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from replaywatch.contract.record import record
from replaywatch.contract.verdict import (
    Blind,
    Estimate,
    Finding,
    Healthy,
    Severity,
    WarmingUp,
    severity_rank,
)
from replaywatch.contract.window import Workload
from replaywatch.detectors.catalogue import DETECTORS
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.own_steps import BOTH_WAYS

VerdictWord = Literal["healthy", "finding", "warming_up", "blind"]


@record(frozen=True, slots=True)
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
    found: list[Finding] = []
    healthy: list[Healthy] = []
    warming_up: list[WarmingUp] = []
    blind: list[Blind] = []
    keep: dict[type, Callable[[Any], None]] = {
        Finding: found.append, Healthy: healthy.append, WarmingUp: warming_up.append, Blind: blind.append
    }  # fmt: skip
    for judge_one in _JUDGES:
        verdict = judge_one(evidence)
        keep[type(verdict)](verdict)
    findings = _sorted(found)
    word, severity = _overall(findings, healthy, warming_up)
    return Judgement(
        workload=evidence.workload,
        verdict=word,
        severity=severity,
        findings=findings,
        healthy=tuple(healthy),
        warming_up=tuple(warming_up),
        blind=tuple(blind),
        estimate=_recoverable(estimate_recoverable(evidence), findings),
    )


_JUDGES: Final = tuple(detector.judge for detector in DETECTORS)


def _recoverable(counterfactual: Estimate | None, findings: tuple[Finding, ...]) -> Estimate | None:
    """The largest share that a fault vouches for; the counterfactual's where no fault knows more.

    Where the process itself ran both ways, its own steps say what the host does beside them, which no model knows.
    """
    costs = [f.estimate for f in findings if f.is_fault and f.estimate and f.estimate.is_recoverable]
    if counterfactual is not None and not any(e.method == BOTH_WAYS for e in costs):
        costs.insert(0, counterfactual)
    return max(costs, key=lambda e: e.low, default=None)


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    if len(findings) < 2:
        return tuple(findings)
    return tuple(sorted(findings, key=lambda f: (-severity_rank(f.severity), not f.is_fault, f.detector)))


def _overall(
    findings: tuple[Finding, ...], healthy: list[Healthy], warming_up: list[WarmingUp]
) -> tuple[VerdictWord, Severity]:
    """One word: faults first; healthy only where something decisive was seen and nothing decisive is missing."""
    faults = [f for f in findings if f.is_fault and f.severity != "none"]
    if faults:
        return "finding", max((f.severity for f in faults), key=severity_rank)
    told: Severity = "info" if any(f.severity != "none" for f in findings) else "none"
    if any(v.decisive for v in warming_up):
        return "warming_up", told
    if any(v.decisive for v in healthy):
        return "healthy", told
    return "blind", told
