"""Which incidents are open, and what a tick's judgements do to them; nothing is written here.

A tick plans its moves first and adopts them only after the store has them, so that a store that failed loses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from replaywatch.collector.hysteresis import QUIET, Change, Hold, Policy, sight_of, step
from replaywatch.contract.verdict import Finding, Severity, severity_rank
from replaywatch.contract.window import Workload
from replaywatch.detectors.judge import Judgement

Event = Literal["opened", "raised", "lowered", "closed", "stale", "resumed", "gone"]
Key = tuple[str, str]
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Something that happens to one workload's part in an incident, which `incident_id` names once it is open.

    `severity` is the one after it; a closed one keeps what it had. `group` names what else shares the incident, where
    that is not the configuration.
    """

    event: Event
    workload_id: str
    workload: Workload
    detector: str
    severity: Severity
    note: str = ""
    finding: Finding | None = None
    config_id: str | None = None
    incident_id: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An incident that is not closed."""

    id: int
    severity: Severity
    is_stale: bool = False


@dataclass(slots=True)
class Plan:
    """What a tick would change: holds, and moves in order."""

    holds: dict[Key, Hold] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)


class IncidentTracker:
    """Holds and open incidents of all workloads, by workload id and detector; used by the detection thread only."""

    def __init__(self, policy: Policy, open_incidents: Mapping[Key, OpenIncident]) -> None:
        self._policy = policy
        self._open: dict[str, dict[str, OpenIncident]] = {}
        self._holds: dict[str, dict[str, Hold]] = {}
        for (workload_id, detector), incident in open_incidents.items():
            self._open.setdefault(workload_id, {})[detector] = incident
            self._holds.setdefault(workload_id, {})[detector] = Hold(incident.severity)

    def open_severities(self) -> Counter[str]:
        """Incidents that are not closed, by severity."""
        return Counter[str](i.severity for incidents in self._open.values() for i in incidents.values())

    def workload_ids(self) -> set[str]:
        """Workloads with an incident that is not closed."""
        return set(self._open)

    def holds(self, workload_id: str) -> bool:
        """Whether anything is remembered of a workload."""
        return workload_id in self._holds or workload_id in self._open

    def observe(
        self,
        plan: Plan,
        workload_id: str,
        workload: Workload,
        judgement: Judgement,
        config_id: str | None,
        group: str | None = None,
    ) -> None:
        """Plan what one more judgement of a workload does."""
        worst = _worst_faults(judgement.findings)
        holds = self._holds.get(workload_id, {})
        for detector in sorted(worst.keys() | holds.keys()):
            here = self._open.get(workload_id, {}).get(detector)
            hold, change = step(holds.get(detector, QUIET), sight_of(judgement, detector), self._policy)
            plan.holds[workload_id, detector] = hold
            base = Move(
                event="resumed",
                workload_id=workload_id,
                workload=workload,
                detector=detector,
                severity=here.severity if here is not None else hold.severity,
                finding=worst.get(detector),
                config_id=config_id,
                group=group,
                incident_id=here.id if here is not None else None,
            )
            plan.moves += _moves(base, here, change, hold)

    def silence(self, plan: Plan, workload_id: str, workload: Workload, *, is_gone: bool) -> None:
        """Plan what it does to a workload's incidents that nothing comes from it: stale first, ended when gone."""
        for detector, incident in self._open.get(workload_id, {}).items():
            if incident.is_stale and not is_gone:
                continue
            plan.moves.append(
                Move(
                    event="gone" if is_gone else "stale",
                    workload_id=workload_id,
                    workload=workload,
                    detector=detector,
                    severity=incident.severity,
                    note="nothing comes from this workload any more; whether it was cured is not known",
                    incident_id=incident.id,
                )
            )

    def adopt(self, plan: Plan, ids: Iterable[int]) -> None:
        """Make a plan true, given the incident ids of its moves in order."""
        for (workload_id, detector), hold in plan.holds.items():
            _keep(self._holds, workload_id, detector, None if hold.is_quiet else hold)
        for move, incident_id in zip(plan.moves, ids, strict=True):
            is_over = move.event in ("closed", "gone")
            incident = OpenIncident(incident_id, move.severity, move.event == "stale")
            _keep(self._open, move.workload_id, move.detector, None if is_over else incident)
            if is_over:
                _keep(self._holds, move.workload_id, move.detector, None)


def _keep(table: dict[str, dict[str, Kept]], workload_id: str, detector: str, value: Kept | None) -> None:
    """Set an entry, or take it away for None, without leaving empty tables behind."""
    if value is not None:
        table.setdefault(workload_id, {})[detector] = value
        return
    inner = table.get(workload_id, {})
    inner.pop(detector, None)
    if not inner:
        table.pop(workload_id, None)


def _moves(base: Move, here: OpenIncident | None, change: Change | None, hold: Hold) -> list[Move]:
    moves = []
    if here is not None and here.is_stale:
        moves.append(replace(base, note="windows come again"))
    if change == "closed":
        moves.append(replace(base, event="closed", note="the finding is gone"))
    elif change is not None:
        moves.append(replace(base, event=change, severity=hold.severity))
    return moves


def _worst_faults(findings: Iterable[Finding]) -> dict[str, Finding]:
    worst: dict[str, Finding] = {}
    for finding in findings:
        if not finding.is_fault:
            continue
        known = worst.get(finding.detector)
        if known is None or severity_rank(finding.severity) > severity_rank(known.severity):
            worst[finding.detector] = finding
    return worst
