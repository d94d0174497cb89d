"""Delivering what waits in the outbox: at least once, in order for each incident, with growing pauses, and not forever.

An attempt is counted before it is made, so that a message that brings the collector down is not tried without end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from replaywatch.collector.guarded_connect import webhook_client
from replaywatch.collector.silences import find_silences, silenced_until_ns
from replaywatch.collector.store import Store
from replaywatch.collector.tables import IncidentRow, NotificationRow
from replaywatch.collector.webhook import TIMEOUT_SECONDS, Outcome, Target, post
from replaywatch.collector.writer import Writer

FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 900.0
ATTEMPTS_MAX: Final = 20
HELD: Final = "held back by a silence"
SILENCES_MAX: Final = 1000
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Pending:
    """A message that waits. `attempts` counts those already begun."""

    id: int
    incident_id: int
    idempotency_key: str
    event: str
    body: str
    attempts: int
    next_attempt_ns: int
    was_held: bool = False


def pause_seconds(attempts: int, jitter: float, wanted_seconds: float | None = None) -> float:
    """Pause after so many attempts: doubling from 2 s up to 15 min, half of it left to `jitter` in 0..1."""
    whole = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 30))
    pause = whole / 2 * (1 + jitter)
    return pause if wanted_seconds is None else min(LONGEST_PAUSE_SECONDS, max(pause, wanted_seconds))


class Notifier:
    """Posts what is due; one thread calls it."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        target: Target,
        clock: Callable[[], int],
        jitter: Callable[[], float],
    ) -> None:
        self._store = store
        self._writer = writer
        self._target = target
        self._clock = clock
        self._jitter = jitter
        self._is_closed = False
        self.outcomes: Counter[str] = Counter()
        _hush()

    def deliver_due(self) -> int:
        """Try every message that is due and first of its incident; how many were tried. Raises: StoreError."""
        due = [pending for pending in self._due() if not self._is_held(pending)]
        tried = 0
        if due:
            with webhook_client(TIMEOUT_SECONDS, allow_private=self._target.allow_private) as client:
                for pending in due:
                    if self._is_closed:
                        break
                    self._deliver(client, pending)
                    tried += 1
        return tried

    def close(self) -> None:
        """Begin no more attempts."""
        self._is_closed = True

    def _is_held(self, pending: Pending) -> bool:
        """Whether a silence keeps a message back. What opened and closed unheard is never told."""
        now_ns = self._clock()
        with self._store.reading() as session:
            silences = find_silences(session, at_ns=now_ns, limit=SILENCES_MAX)
            until_ns = silenced_until_ns(session, pending.incident_id, silences)
            incident = session.get(IncidentRow, pending.incident_id)
            is_over = incident is None or incident.state == "closed"
        if is_over and pending.event == "opened" and pending.attempts == 0 and (until_ns or pending.was_held):
            self._writer.do(lambda s: _drop_all(s, pending.incident_id, now_ns))
            self.outcomes["silenced"] += 1
            return True
        if until_ns is None:
            return False
        self._writer.do(lambda s: _set(s, pending.id, next_attempt_ns=until_ns, last_error=HELD))
        return True

    def _due(self) -> list[Pending]:
        now_ns = self._clock()
        first_ids = (
            select(func.min(NotificationRow.id))
            .where(NotificationRow.state == "pending")
            .group_by(NotificationRow.incident_id)
        )
        query = (
            select(NotificationRow)
            .where(NotificationRow.id.in_(first_ids), NotificationRow.next_attempt_ns <= now_ns)
            .order_by(NotificationRow.next_attempt_ns, NotificationRow.id)
            .limit(_PAGE)
        )
        with self._store.reading() as session:
            return [
                Pending(
                    id=r.id,
                    incident_id=r.incident_id,
                    idempotency_key=r.idempotency_key,
                    event=r.event,
                    body=r.body,
                    attempts=r.attempts,
                    next_attempt_ns=r.next_attempt_ns,
                    was_held=r.last_error == HELD,
                )
                for r in session.scalars(query)
            ]

    def _deliver(self, client: httpx.Client, pending: Pending) -> None:
        attempts = pending.attempts + 1
        next_ns = self._clock() + int(pause_seconds(attempts, self._jitter()) * 1e9)
        self._writer.do(lambda s: _set(s, pending.id, attempts=attempts, next_attempt_ns=next_ns))
        outcome = post(
            client,
            self._target,
            pending.body,
            pending.idempotency_key,
            pending.event,
            self._clock() // 10**9,
        )
        self._settle(pending, attempts, outcome)

    def _settle(self, pending: Pending, attempts: int, outcome: Outcome) -> None:
        now_ns = self._clock()
        if outcome.delivered:
            self._writer.do(lambda s: _set(s, pending.id, state="sent", settled_ns=now_ns, last_error=None))
            self.outcomes["sent"] += 1
        elif outcome.is_final or attempts >= ATTEMPTS_MAX:
            self._writer.do(lambda s: _set(s, pending.id, state="dead", settled_ns=now_ns, last_error=outcome.error))
            self.outcomes["dead"] += 1
        else:
            pause = pause_seconds(attempts, self._jitter(), outcome.retry_after_seconds)
            next_ns = now_ns + int(pause * 1e9)
            self._writer.do(lambda s: _set(s, pending.id, next_attempt_ns=next_ns, last_error=outcome.error))
            self.outcomes["retried"] += 1


def _set(session: Session, key: int, **values: object) -> None:
    session.execute(update(NotificationRow).where(NotificationRow.id == key).values(**values))


def _drop_all(session: Session, incident_id: int, at_ns: int) -> None:
    waiting = (NotificationRow.incident_id == incident_id) & (NotificationRow.state == "pending")
    session.execute(update(NotificationRow).where(waiting).values(state="silenced", settled_ns=at_ns))


def _hush() -> None:
    # At INFO httpx writes every address that it posts to, and a webhook's address often is its secret.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


def outbox_counts(session: Session) -> dict[str, int]:
    """Messages by state."""
    query = select(NotificationRow.state, func.count()).group_by(NotificationRow.state)
    return {row[0]: row[1] for row in session.execute(query)}
