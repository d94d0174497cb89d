"""Incidents in the store: moves become rows, an audit trail and outgoing messages in one transaction."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from replaywatch.collector.documents import Document, finding_document
from replaywatch.collector.tables import IncidentEventRow, IncidentRow, NotificationRow
from replaywatch.collector.tracker import Key, Move, OpenIncident
from replaywatch.contract.verdict import SEVERITIES, Severity, severity_rank
from replaywatch.contract.window import Workload

NOTIFIED: Final = {"opened": "opened", "raised": "raised", "closed": "closed", "gone": "closed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident. `finding` is a document: as of the last change that had one, or as of now when `is_current`."""

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
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """One line of an incident's history."""

    at_ns: int
    event: str
    severity: str
    note: str


Message = Callable[[str, Incident, Workload, str], str]


def record(session: Session, moves: Iterable[Move], at_ns: int, message: Message | None) -> list[int]:
    """Write moves in order, with a message for each that people are told of; the incidents' ids in order.

    `message` makes the body from event, incident, workload and idempotency key; None where nobody is to be told.
    """
    return [_record_move(session, move, at_ns, message) for move in moves]


def _record_move(session: Session, move: Move, at_ns: int, message: Message | None) -> int:
    row = _opened(move, at_ns) if move.incident_id is None else session.get_one(IncidentRow, move.incident_id)
    row.state = {"stale": "stale", "closed": "closed", "gone": "closed"}.get(move.event, "open")
    row.severity = move.severity
    row.worst_severity = max(_severity(row.worst_severity), move.severity, key=severity_rank)
    row.changed_ns = at_ns
    if row.state == "closed":
        row.closed_ns, row.open_key = at_ns, None
    if move.finding is not None:
        row.finding = json.dumps(finding_document(move.finding))
    session.add(row)
    session.flush()
    session.add(
        IncidentEventRow(
            incident_id=row.id, at_ns=at_ns, event=move.event, severity=move.severity, note=move.note or _note(move)
        )
    )
    if message is not None and move.event in NOTIFIED:
        _notify(session, NOTIFIED[move.event], incident_of(row), move.workload, at_ns, message)
    return row.id


def _opened(move: Move, at_ns: int) -> IncidentRow:
    return IncidentRow(
        open_key=f"{move.workload_id}/{move.detector}",
        group_key=f"{move.detector}/{move.config_id or ''}",
        workload_id=move.workload_id,
        workload_label=move.workload.label,
        detector=move.detector,
        worst_severity=move.severity,
        opened_ns=at_ns,
        finding="{}",
    )


def _note(move: Move) -> str:
    return move.finding.title if move.finding is not None else ""


def _notify(session: Session, event: str, incident: Incident, workload: Workload, at_ns: int, message: Message) -> None:
    key = uuid.uuid4().hex
    session.add(
        NotificationRow(
            idempotency_key=key,
            incident_id=incident.id,
            event=event,
            body=message(event, incident, workload, key),
            state="pending",
            created_ns=at_ns,
            next_attempt_ns=at_ns,
        )
    )


def open_incidents(session: Session) -> dict[Key, OpenIncident]:
    """All incidents that are not closed, for a collector that starts."""
    rows = session.scalars(select(IncidentRow).where(IncidentRow.state != "closed"))
    return {(r.workload_id, r.detector): OpenIncident(r.id, _severity(r.severity), r.state == "stale") for r in rows}


def find_incidents(
    session: Session, *, states: tuple[str, ...] = (), workload_id: str | None = None, limit: int = 100
) -> list[Incident]:
    """Incidents, those last changed first."""
    query = select(IncidentRow).order_by(IncidentRow.changed_ns.desc(), IncidentRow.id.desc()).limit(limit)
    if states:
        query = query.where(IncidentRow.state.in_(states))
    if workload_id is not None:
        query = query.where(IncidentRow.workload_id == workload_id)
    return [incident_of(row) for row in session.scalars(query)]


def find_incident(session: Session, incident_id: int) -> tuple[Incident, list[IncidentEvent]] | None:
    """An incident with its history, oldest first; None when there is none."""
    row = session.get(IncidentRow, incident_id)
    if row is None:
        return None
    query = select(IncidentEventRow).where(IncidentEventRow.incident_id == incident_id).order_by(IncidentEventRow.id)
    events = [IncidentEvent(e.at_ns, e.event, e.severity, e.note) for e in session.scalars(query)]
    return incident_of(row), events


def incident_of(row: IncidentRow) -> Incident:
    """The incident in a row."""
    return Incident(
        id=row.id,
        group_key=row.group_key,
        workload_id=row.workload_id,
        workload_label=row.workload_label,
        detector=row.detector,
        state=row.state,
        severity=_severity(row.severity),
        worst_severity=_severity(row.worst_severity),
        opened_ns=row.opened_ns,
        changed_ns=row.changed_ns,
        closed_ns=row.closed_ns,
        finding=json.loads(row.finding),
    )


def _severity(text: str) -> Severity:
    return next(s for s in SEVERITIES if s == text)
