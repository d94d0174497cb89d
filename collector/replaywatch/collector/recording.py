"""Moves become rows, an audit trail and outgoing messages in one transaction.

Workloads with one detector's finding under one engine configuration belong to one incident: a rollout that loses graphs
on four hundred pods is told once. The opening waits a little for others to join; afterwards people are told again when
the incident rises, when it has grown tenfold, and when its last member closed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from replaywatch.collector.documents import finding_document
from replaywatch.collector.incidents import Incident, incident_of, severity_of
from replaywatch.collector.remembered import recall, remember
from replaywatch.collector.tables import IncidentEventRow, IncidentRow, MemberRow, NotificationRow
from replaywatch.collector.tracker import Move
from replaywatch.contract.errors import StoreError
from replaywatch.contract.verdict import severity_rank
from replaywatch.contract.window import Workload

GROWN: Final = 10
_AT_ONCE: Final = 500
_STATES: Final = {"stale": "stale", "closed": "closed", "gone": "closed"}
Message = Callable[[str, Incident, Workload, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How people are told: what makes a body, how long an opening waits for company, when growth is worth a message.

    `message` makes the body from event, incident, workload and idempotency key; None where nobody is to be told.
    """

    message: Message | None = None
    wait_ns: int = 0
    again_ns: int = 0


@dataclass(slots=True)
class _Before:
    """An incident with what it was before a tick's moves."""

    row: IncidentRow
    state: str
    severity: str
    is_new: bool


def record(session: Session, moves: Sequence[Move], at_ns: int, telling: Telling, partition: int = 0) -> list[int]:
    """Write moves in order, and tell of what they did to incidents; the members' ids in order."""
    members = _load_members(session, moves)
    incidents = _load_incidents(session, moves, members.values())
    by_key = {before.row.open_key: before for before in incidents.values() if before.row.open_key is not None}
    moved = []
    for move in moves:
        member = members.get(move.incident_id or 0)
        if member is None:
            before = by_key.get(group_key(move))
            if before is None:
                before = by_key[group_key(move)] = _open_incident(session, move, at_ns)
                incidents[before.row.id] = before
            member = _new_member(move, before.row.id, at_ns, partition)
            session.add(member)
        _move_member(session, member, move, at_ns)
        moved.append(member)
    session.flush()
    for before in incidents.values():
        _sum_up(session, before, at_ns)
        _tell(session, before, at_ns, telling)
    return [member.id for member in moved]


def group_key(move: Move) -> str:
    """What incidents of one rollout share: detector and configuration; the workload where no configuration is known."""
    return f"{move.detector}/{move.group or move.config_id or move.workload_id}"


def _load_members(session: Session, moves: Iterable[Move]) -> dict[int, MemberRow]:
    wanted = sorted({move.incident_id for move in moves if move.incident_id is not None})
    found: dict[int, MemberRow] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        some = MemberRow.id.in_(wanted[start : start + _AT_ONCE])
        found.update((row.id, row) for row in session.scalars(select(MemberRow).where(some)))
    missing = set(wanted) - found.keys()
    if missing:
        raise StoreError(f"the store lacks {len(missing)} parts of open incidents; was it changed by hand?")
    return found


def _load_incidents(session: Session, moves: Iterable[Move], members: Iterable[MemberRow]) -> dict[int, _Before]:
    """The incidents that moves touch, locked in one order, so that workers that share them wait and do not block."""
    ids = {member.incident_id for member in members}
    keys = {group_key(move) for move in moves if move.incident_id is None}
    query = select(IncidentRow).order_by(IncidentRow.id).with_for_update()
    found: dict[int, _Before] = {}
    for condition in (*_in_parts(IncidentRow.id, ids), *_in_parts(IncidentRow.open_key, keys)):
        for row in session.scalars(query.where(condition)):
            found.setdefault(row.id, _Before(row, row.state, row.severity, is_new=False))
    return found


def _in_parts(column: Any, values: Iterable[Any]) -> list[Any]:
    wanted = sorted(values)
    return [column.in_(wanted[start : start + _AT_ONCE]) for start in range(0, len(wanted), _AT_ONCE)]


def _open_incident(session: Session, move: Move, at_ns: int) -> _Before:
    key = group_key(move)
    row = IncidentRow(
        open_key=key,
        group_key=key,
        workload_id=move.workload_id,
        workload_label=move.workload.label,
        detector=move.detector,
        state="open",
        severity=move.severity,
        worst_severity=move.severity,
        opened_ns=at_ns,
        changed_ns=at_ns,
        finding="{}",
    )
    session.add(row)
    session.flush()
    return _Before(row, row.state, row.severity, is_new=True)


def _new_member(move: Move, incident_id: int, at_ns: int, partition: int) -> MemberRow:
    return MemberRow(
        incident_id=incident_id,
        open_key=f"{move.workload_id}/{move.detector}",
        workload_id=move.workload_id,
        workload_label=move.workload.label,
        who=remember(move.workload),
        detector=move.detector,
        worst_severity=move.severity,
        opened_ns=at_ns,
        finding="{}",
        partition=partition,
    )


def _move_member(session: Session, member: MemberRow, move: Move, at_ns: int) -> None:
    member.state = _STATES.get(move.event, "open")
    member.severity = move.severity
    member.worst_severity = max(severity_of(member.worst_severity), move.severity, key=severity_rank)
    member.changed_ns = at_ns
    if member.state == "closed":
        member.closed_ns, member.open_key = at_ns, None
    if move.finding is not None:
        member.finding = json.dumps(finding_document(move.finding))
    told = move.note or (move.finding.title if move.finding is not None else "")
    session.add(
        IncidentEventRow(
            incident_id=member.incident_id,
            at_ns=at_ns,
            event=move.event,
            severity=move.severity,
            note=f"{member.workload_label}: {told}" if told else member.workload_label,
        )
    )


def _sum_up(session: Session, before: _Before, at_ns: int) -> None:
    """Make an incident what its members are."""
    row = before.row
    counts = (
        select(MemberRow.state, MemberRow.severity, func.count())
        .where(MemberRow.incident_id == row.id)
        .group_by(MemberRow.state, MemberRow.severity)
    )
    found = [(state, severity_of(severity), n) for state, severity, n in session.execute(counts)]
    alive = [(state, severity) for state, severity, _ in found if state != "closed"]
    row.members = sum(n for _, _, n in found)
    row.open_members = sum(n for state, _, n in found if state != "closed")
    row.state = "open" if any(state == "open" for state, _ in alive) else "stale" if alive else "closed"
    row.changed_ns = at_ns
    if not alive:
        row.closed_ns, row.open_key = at_ns, None
        return
    row.severity = max((severity for _, severity in alive), key=severity_rank)
    row.worst_severity = max(severity_of(row.worst_severity), severity_of(row.severity), key=severity_rank)
    worst = session.scalars(
        select(MemberRow)
        .where(MemberRow.incident_id == row.id, MemberRow.state != "closed", MemberRow.severity == row.severity)
        .order_by(MemberRow.id)
        .limit(1)
    ).one()
    row.workload_id, row.workload_label, row.finding = worst.workload_id, worst.workload_label, worst.finding


def _tell(session: Session, before: _Before, at_ns: int, telling: Telling) -> None:
    row = before.row
    if telling.message is None:
        return
    # Locked: a notifier in another process may be about to put messages in its place.
    waiting = session.scalar(
        select(NotificationRow)
        .where(
            NotificationRow.incident_id == row.id,
            NotificationRow.state == "pending",
            NotificationRow.attempts == 0,
            NotificationRow.event != "closed",
        )
        .with_for_update()
    )
    event = _event(before, at_ns, telling)
    if waiting is not None and row.state != "closed":
        # Nobody was told yet: what waits says how it is now, rather than being followed by a second message.
        waiting.body = telling.message(waiting.event, incident_of(row), _who(session, row), waiting.idempotency_key)
        row.told_members = row.members
    elif event is not None:
        key = uuid.uuid4().hex
        session.add(
            NotificationRow(
                idempotency_key=key,
                incident_id=row.id,
                event=event,
                body=telling.message(event, incident_of(row), _who(session, row), key),
                state="pending",
                created_ns=at_ns,
                next_attempt_ns=at_ns + (telling.wait_ns if event == "opened" else 0),
            )
        )
        row.told_members = row.members


def _event(before: _Before, at_ns: int, telling: Telling) -> str | None:
    row = before.row
    if row.state == "closed":
        return "closed"
    if before.is_new:
        return "opened"
    if severity_rank(severity_of(row.severity)) > severity_rank(severity_of(before.severity)):
        return "raised"
    has_grown = row.members >= GROWN * max(1, row.told_members) and at_ns - row.opened_ns >= telling.again_ns
    return "grown" if has_grown and row.acknowledged_ns is None else None


def _who(session: Session, row: IncidentRow) -> Workload:
    return worst_workload(session, row.id, row.workload_id, row.workload_label)


def worst_workload(session: Session, incident_id: int, workload_id: str, label: str) -> Workload:
    """Who an incident's worst member is; by its label only, where nothing else is known any more."""
    query = select(MemberRow.who).where(MemberRow.incident_id == incident_id, MemberRow.workload_id == workload_id)
    content = session.scalars(query).first()
    found = recall(Workload, content, f"workload {workload_id}") if content is not None else None
    return found or Workload(name=label)
