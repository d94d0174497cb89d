"""`Verdict` = Healthy | Finding | WarmingUp | Blind: what a detector says of one workload.

`WarmingUp` (not enough yet) and `Blind` (cannot see) are verdicts of their own and are never shown as healthy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from replaywatch.contract.record import record

Severity = Literal["none", "info", "warn", "page"]
SEVERITIES: Final[tuple[Severity, ...]] = ("none", "info", "warn", "page")
Ballot = Literal["for", "against", "abstains"]

INFO_RATIO: Final = 0.05
WARN_RATIO: Final = 0.10
PAGE_RATIO: Final = 0.15


def severity_rank(severity: Severity) -> int:
    """Order of a severity, 0 for none."""
    return SEVERITIES.index(severity)


def severity_of_ratio(recoverable_ratio: float) -> Severity:
    """Severity of a recoverable share of the step time: 5 % info, 10 % warn, 15 % page.

    Source: published gains of graphs on server GPUs are 16 % and more, on an L4 2.7 % (see docs/detections.md).
    """
    if recoverable_ratio >= PAGE_RATIO:
        return "page"
    if recoverable_ratio >= WARN_RATIO:
        return "warn"
    return "info" if recoverable_ratio >= INFO_RATIO else "none"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Recoverable share of the step time, in 0..1, with an interval meant to hold the truth nine times in ten.

    `step_us` is the step time without any profiler, `graph_step_us` the step time if the work were captured.
    `low` and `high` bound `ratio`; `method` says how it was made. `is_recoverable` False: the share is lost, but graphs
    are not what brings it back.
    """

    ratio: float
    low: float
    high: float
    step_us: float | None = None
    graph_step_us: float | None = None
    method: str = "counterfactual"
    is_recoverable: bool = True

    @property
    def severity(self) -> Severity:
        """Severity that the low end of the interval supports."""
        return severity_of_ratio(self.low)

    @property
    def saved_us(self) -> float | None:
        """Microseconds a step that would come back; None when the step time is unknown."""
        return None if self.step_us is None else self.step_us * self.ratio


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One number behind a finding. `unit` is empty for counts and texts; `source` says where it was read."""

    name: str
    value: float | int | str
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A possible cause, with its weight in 0..1 and the observation that speaks for it."""

    text: str
    weight: float
    because: str


@dataclass(frozen=True, slots=True)
class Vote:
    """What one independent way of knowing says: intent, peers, counterfactual."""

    voter: str
    ballot: Ballot
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something is wrong, or worth knowing (`is_fault` False: information that never makes a workload unhealthy)."""

    detector: str
    subject: str
    severity: Severity
    title: str
    evidence: tuple[EvidenceItem, ...]
    estimate: Estimate | None = None
    causes: tuple[Cause, ...] = ()
    remedy: str | None = None
    votes: tuple[Vote, ...] = ()
    is_fault: bool = True


@record(frozen=True, slots=True)
class Healthy:
    """The detector looked and found nothing; `because` names what it looked at.

    `decisive`: enough to call the workload healthy, since graphs were seen to be used, or to have nothing to win. That
    captures did not fail, say, is not.
    """

    detector: str
    because: str
    decisive: bool = False


@record(frozen=True, slots=True)
class WarmingUp:
    """Not enough seen yet; `needs` says how much is missing. `decisive`: the workload cannot be judged before."""

    detector: str
    needs: str
    decisive: bool = False


@record(frozen=True, slots=True)
class Blind:
    """The signal is not there; `reason` says why and what would bring it."""

    detector: str
    reason: str


Verdict = Healthy | Finding | WarmingUp | Blind
