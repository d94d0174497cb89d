"""The outbox: an event becomes a message for each destination, which is tried, sent or given up on its own.

An event's row has a bare key and is `pending` until it is due. Then rows of state `sending` take its place, one for
each destination that is told of it; their keys name the destination after a colon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from replaywatch.collector.tables import NotificationRow
from replaywatch.contract.errors import WireError
from replaywatch.notify.destination import Destination, is_told
from replaywatch.notify.notice import read_notice

KEY_LENGTH: Final = 32
HELD: Final = "held back by a silence"
STATES: Final = ("pending", "sending", "sent", "dead", "silenced", "unwanted")
PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Pending:
    """A row that is due. `destination` is empty for an event; `attempts` counts those already begun."""

    id: int
    incident_id: int
    key: str
    event: str
    body: str
    attempts: int
    was_held: bool

    @property
    def destination(self) -> str:
        """Where it goes."""
        return self.key[KEY_LENGTH + 1 :]


def due(session: Session, state: str, now_ns: int) -> list[Pending]:
    """Rows of a state that are due and first of their incident and destination."""
    lane = func.substr(NotificationRow.idempotency_key, KEY_LENGTH + 1)
    whole = (NotificationRow.incident_id, lane) if state == "sending" else (NotificationRow.incident_id,)
    first_ids = select(func.min(NotificationRow.id)).where(NotificationRow.state == state).group_by(*whole)
    query = (
        select(NotificationRow)
        .where(NotificationRow.id.in_(first_ids), NotificationRow.next_attempt_ns <= now_ns)
        .order_by(NotificationRow.next_attempt_ns, NotificationRow.id)
        .limit(PAGE)
    )
    return [
        Pending(
            id=r.id,
            incident_id=r.incident_id,
            key=r.idempotency_key,
            event=r.event,
            body=r.body,
            attempts=r.attempts,
            was_held=r.last_error == HELD,
        )
        for r in session.scalars(query)
    ]


def fan_out(session: Session, events: Iterable[Pending], destinations: Sequence[Destination], now_ns: int) -> None:
    """Put a message for each destination in the place of an event."""
    for event in events:
        # Another process on the same database may have been first.
        row = session.get(NotificationRow, event.id, with_for_update=True, populate_existing=True)
        if row is None or row.state != "pending":
            continue
        try:
            notice = read_notice(row.body)
        except WireError as error:
            row.state, row.settled_ns, row.last_error = "dead", now_ns, str(error)
            continue
        told = [d for d in destinations if is_told(d, notice)]
        session.add_all(_message(row, destination, now_ns) for destination in told)
        if told:
            session.delete(row)
        else:
            row.state, row.settled_ns = "unwanted", now_ns


def _message(event: NotificationRow, destination: Destination, now_ns: int) -> NotificationRow:
    key = f"{event.idempotency_key[:KEY_LENGTH]}:{destination.name}"
    return NotificationRow(
        idempotency_key=key,
        incident_id=event.incident_id,
        event=event.event,
        body=json.dumps({**json.loads(event.body), "idempotency_key": key}, separators=(",", ":")),
        state="sending",
        created_ns=event.created_ns,
        next_attempt_ns=now_ns,
    )


def claim(session: Session, pending: Pending, next_attempt_ns: int) -> bool:
    """Count an attempt before it is made; False when another process on the same database counted it first."""
    mine = (
        (NotificationRow.id == pending.id)
        & (NotificationRow.state == "sending")
        & (NotificationRow.attempts == pending.attempts)
    )
    values = {"attempts": pending.attempts + 1, "next_attempt_ns": next_attempt_ns}
    done = session.execute(update(NotificationRow).where(mine).values(**values).returning(NotificationRow.id))
    return done.first() is not None


def change(session: Session, key: int, **values: object) -> None:
    """Set columns of a row."""
    session.execute(update(NotificationRow).where(NotificationRow.id == key).values(**values))


def drop_events(session: Session, incident_id: int, at_ns: int) -> None:
    """Tell nobody of what waits of an incident."""
    waiting = (NotificationRow.incident_id == incident_id) & (NotificationRow.state == "pending")
    session.execute(update(NotificationRow).where(waiting).values(state="silenced", settled_ns=at_ns))


def outbox_counts(session: Session) -> dict[str, int]:
    """Messages by state."""
    query = select(NotificationRow.state, func.count()).group_by(NotificationRow.state)
    return {row[0]: row[1] for row in session.execute(query)}


def find_messages(
    session: Session, states: tuple[str, ...] = (), destination: str | None = None, limit: int = 100, offset: int = 0
) -> list[NotificationRow]:
    """Rows of the outbox, newest first."""
    wanted: list[ColumnElement[bool]] = []
    if states:
        wanted.append(NotificationRow.state.in_(states))
    if destination is not None:
        wanted.append(func.substr(NotificationRow.idempotency_key, KEY_LENGTH + 2) == destination)
    query = select(NotificationRow).where(*wanted).order_by(NotificationRow.id.desc()).limit(limit).offset(offset)
    return list(session.scalars(query))


def waiting_by_destination(session: Session) -> dict[str, int]:
    """Messages that are still to be sent, by destination."""
    name = func.substr(NotificationRow.idempotency_key, KEY_LENGTH + 2)
    query = select(name, func.count()).where(NotificationRow.state == "sending").group_by(name)
    return {str(row[0]): int(row[1]) for row in session.execute(query)}
