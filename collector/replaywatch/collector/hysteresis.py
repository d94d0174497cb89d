"""When an incident opens, rises, sinks and closes: a pure state machine over the severities that ticks saw.

A severity must hold for some ticks before it counts, and its absence for more ticks before it stops counting. A tick on
which the detector could not see changes nothing: silence is not health.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from replaywatch.contract.verdict import Severity, severity_rank
from replaywatch.detectors.judge import Judgement

Change = Literal["opened", "raised", "lowered", "closed"]
Sight = Severity | None


@dataclass(frozen=True, slots=True)
class Policy:
    """Least severity that opens, ticks to open or rise, ticks to close or sink."""

    open_severity: Severity = "warn"
    open_ticks: int = 2
    close_ticks: int = 6


@dataclass(frozen=True, slots=True)
class Hold:
    """Where one workload and detector stand. `severity` none means that no incident is open.

    `floor` is the least severity of the ticks above, `ceiling` the greatest of the ticks below.
    """

    severity: Severity = "none"
    ticks_above: int = 0
    floor: Severity = "none"
    ticks_below: int = 0
    ceiling: Severity = "none"

    @property
    def is_quiet(self) -> bool:
        """Whether nothing needs to be remembered."""
        return self == QUIET


QUIET: Final = Hold()


def sight_of(judgement: Judgement, detector: str) -> Sight:
    """Severity of a detector's faults in a judgement; none when it looked and found nothing; None when it was blind."""
    faults = [f.severity for f in judgement.findings if f.detector == detector and f.is_fault]
    if faults:
        return max(faults, key=severity_rank)
    unseeing = {b.detector for b in judgement.blind} | {w.detector for w in judgement.warming_up}
    return None if detector in unseeing else "none"


def step(hold: Hold, sight: Sight, policy: Policy) -> tuple[Hold, Change | None]:
    """The hold after one more tick, and what changed with it."""
    if sight is None:
        return hold, None
    if severity_rank(sight) < severity_rank(policy.open_severity):
        sight = "none"
    if severity_rank(sight) > severity_rank(hold.severity):
        return _above(hold, sight, policy)
    if severity_rank(sight) < severity_rank(hold.severity):
        return _below(hold, sight, policy)
    return Hold(hold.severity), None


def _above(hold: Hold, sight: Severity, policy: Policy) -> tuple[Hold, Change | None]:
    floor = min(hold.floor, sight, key=severity_rank) if hold.ticks_above else sight
    if hold.ticks_above + 1 >= policy.open_ticks:
        return Hold(floor), "opened" if hold.severity == "none" else "raised"
    return Hold(hold.severity, hold.ticks_above + 1, floor), None


def _below(hold: Hold, sight: Severity, policy: Policy) -> tuple[Hold, Change | None]:
    ceiling = max(hold.ceiling, sight, key=severity_rank) if hold.ticks_below else sight
    if hold.ticks_below + 1 >= policy.close_ticks:
        return Hold(ceiling), "closed" if ceiling == "none" else "lowered"
    return Hold(hold.severity, 0, "none", hold.ticks_below + 1, ceiling), None
