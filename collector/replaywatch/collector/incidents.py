"""Incidents as people meet them: read from the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from replaywatch.collector.documents import Document
from replaywatch.collector.tables import IncidentEventRow, IncidentRow, MemberRow
from replaywatch.collector.tracker import Key, OpenIncident
from replaywatch.contract.verdict import SEVERITIES, Severity

STATES: Final = ("open", "stale", "closed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident. `finding` is a document: as of the last change that had one, or as of now when `is_current`.

    Workload and finding are those of its worst member; `members` counts all that ever belonged to it.
    """

    id: int
    group_key: str
    workload_id: str
    workload_label: str
    detector: str
    state: str
    severity: Severity
    worst_severity: Severity
    opened_ns: int
    changed_ns: int
    closed_ns: int | None
    finding: Document
    members: int
    open_members: int
    acknowledged_ns: int | None
    acknowledged_by: str | None
    is_current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One workload's part in an incident."""

    workload_id: str
    workload_label: str
    state: str
    severity: str
    worst_severity: str
    opened_ns: int
    closed_ns: int | None


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """One line of an incident's history."""

    at_ns: int
    event: str
    severity: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which incidents are asked for; empty and None mean any."""

    states: tuple[str, ...] = ()
    workload_id: str | None = None
    detector: str | None = None
    severity: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """What the rows must fulfil."""
        found: list[ColumnElement[bool]] = []
        if self.states:
            found.append(IncidentRow.state.in_(self.states))
        if self.workload_id is not None:
            mine = select(MemberRow.incident_id).where(MemberRow.workload_id == self.workload_id)
            found.append(IncidentRow.id.in_(mine))
        if self.detector is not None:
            found.append(IncidentRow.detector == self.detector)
        if self.severity is not None:
            found.append(IncidentRow.severity == self.severity)
        return found


def open_members(session: Session, partition: int | None = None) -> dict[Key, OpenIncident]:
    """The parts of workloads in incidents that are not over, for a detection that starts."""
    query = select(MemberRow).where(MemberRow.state != "closed")
    if partition is not None:
        query = query.where(MemberRow.partition == partition)
    return {
        (r.workload_id, r.detector): OpenIncident(r.id, severity_of(r.severity), r.state == "stale")
        for r in session.scalars(query)
    }


def find_incidents(session: Session, wanted: Wanted, limit: int = 100, offset: int = 0) -> list[Incident]:
    """Incidents, those last changed first."""
    query = (
        select(IncidentRow)
        .where(*wanted.conditions())
        .order_by(IncidentRow.changed_ns.desc(), IncidentRow.id.desc())
        .limit(limit)
        .offset(offset)
    )
    return [incident_of(row) for row in session.scalars(query)]


def count_incidents(session: Session, wanted: Wanted) -> int:
    """How many incidents there are."""
    return session.scalar(select(func.count()).select_from(IncidentRow).where(*wanted.conditions())) or 0


def find_incident(session: Session, incident_id: int) -> tuple[Incident, list[IncidentEvent]] | None:
    """An incident with its history, oldest first; None when there is none."""
    row = session.get(IncidentRow, incident_id)
    if row is None:
        return None
    query = select(IncidentEventRow).where(IncidentEventRow.incident_id == incident_id).order_by(IncidentEventRow.id)
    events = [IncidentEvent(e.at_ns, e.event, e.severity, e.note) for e in session.scalars(query)]
    return incident_of(row), events


def find_members(session: Session, incident_id: int, limit: int, offset: int = 0) -> list[Member]:
    """The workloads of an incident, in the order in which they joined it."""
    query = select(MemberRow).where(MemberRow.incident_id == incident_id).order_by(MemberRow.id)
    return [
        Member(
            workload_id=r.workload_id,
            workload_label=r.workload_label,
            state=r.state,
            severity=r.severity,
            worst_severity=r.worst_severity,
            opened_ns=r.opened_ns,
            closed_ns=r.closed_ns,
        )
        for r in session.scalars(query.limit(limit).offset(offset))
    ]


def incident_of(row: IncidentRow) -> Incident:
    """The incident in a row."""
    return Incident(
        id=row.id,
        group_key=row.group_key,
        workload_id=row.workload_id,
        workload_label=row.workload_label,
        detector=row.detector,
        state=row.state,
        severity=severity_of(row.severity),
        worst_severity=severity_of(row.worst_severity),
        opened_ns=row.opened_ns,
        changed_ns=row.changed_ns,
        closed_ns=row.closed_ns,
        finding=json.loads(row.finding),
        members=row.members,
        open_members=row.open_members,
        acknowledged_ns=row.acknowledged_ns,
        acknowledged_by=row.acknowledged_by,
    )


def severity_of(text: str) -> Severity:
    """A severity as the store has it."""
    return next(s for s in SEVERITIES if s == text)
