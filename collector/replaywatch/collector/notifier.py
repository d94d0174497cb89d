"""Delivering what waits in the outbox: at least once, in order for each incident and destination, not forever.

An attempt is counted before it is made, so that a message that brings the collector down is not tried without end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import httpx

from replaywatch.collector.guarded_connect import webhook_client
from replaywatch.collector.notified import NOBODY, Notifications
from replaywatch.collector.outbox import (
    HELD,
    Pending,
    change,
    claim,
    drop_events,
    due,
    fan_out,
    waiting_by_destination,
)
from replaywatch.collector.silences import find_silences, silenced_until_ns
from replaywatch.collector.store import Store
from replaywatch.collector.tables import IncidentRow
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import WireError
from replaywatch.notify.allowance import Allowance
from replaywatch.notify.destination import TIMEOUT_SECONDS, Destination, Outcome, deliver
from replaywatch.notify.notice import read_notice

FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 900.0
ATTEMPTS_MAX: Final = 20
SILENCES_MAX: Final = 1000


def pause_seconds(attempts: int, jitter: float, wanted_seconds: float | None = None) -> float:
    """Pause after so many attempts: doubling from 2 s up to 15 min, half of it left to `jitter` in 0..1."""
    whole = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 30))
    pause = whole / 2 * (1 + jitter)
    return pause if wanted_seconds is None else min(LONGEST_PAUSE_SECONDS, max(pause, wanted_seconds))


class Notifier:
    """Fans events out to destinations and posts what is due; one thread calls it."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        destinations: Sequence[Destination],
        clock: Callable[[], int],
        jitter: Callable[[], float],
        *,
        allow_private: bool = False,
        per_minute: int = 30,
    ) -> None:
        self._store = store
        self._writer = writer
        self._destinations = {d.name: d for d in destinations}
        self._allowances = {name: Allowance(per_minute) for name in self._destinations}
        self._clock = clock
        self._jitter = jitter
        self._allow_private = allow_private
        self._is_closed = False
        self.outcomes = Notifications(tuple(self._destinations))
        _hush()

    def deliver_due(self) -> int:
        """Try every message that is due and first of its lane; how many were tried. Raises: StoreError."""
        self._fan_out()
        with self._store.reading() as session:
            waiting = due(session, "sending", self._clock())
            self.outcomes.wait(waiting_by_destination(session))
        tried = 0
        with ExitStack() as stack:
            clients: dict[bool, httpx.Client] = {}
            for pending in waiting:
                if self._is_closed:
                    break
                destination = self._destinations.get(pending.destination)
                if destination is None:
                    self._settle(pending, pending.attempts, Outcome(False, "it is no longer configured", True))
                elif self._may_go(pending):
                    inside = self._allow_private or destination.is_inside
                    if inside not in clients:
                        client = webhook_client(TIMEOUT_SECONDS, allow_private=inside)
                        clients[inside] = stack.enter_context(client)
                    self._deliver(clients[inside], destination, pending)
                    tried += 1
        return tried

    def close(self) -> None:
        """Begin no more attempts."""
        self._is_closed = True

    def _fan_out(self) -> None:
        with self._store.reading() as session:
            events = due(session, "pending", self._clock())
        ready = [event for event in events if not self._is_held(event)]
        if ready:
            told, now_ns = tuple(self._destinations.values()), self._clock()
            self._writer.do(lambda s: fan_out(s, ready, told, now_ns))

    def _may_go(self, pending: Pending) -> bool:
        """Whether neither a silence nor the destination's allowance holds a message back."""
        if self._is_held(pending):
            return False
        is_allowed = self._allowances[pending.destination].take(self._clock())
        if not is_allowed:
            self.outcomes.count(pending.destination, "limited")
            later_ns = self._clock() + int(FIRST_PAUSE_SECONDS * 1e9)
            self._writer.do(lambda s: change(s, pending.id, next_attempt_ns=later_ns))
        return is_allowed

    def _is_held(self, pending: Pending) -> bool:
        """Whether a silence keeps a message back. What opened and closed unheard is never told."""
        now_ns = self._clock()
        with self._store.reading() as session:
            silences = find_silences(session, at_ns=now_ns, limit=SILENCES_MAX)
            until_ns = silenced_until_ns(session, pending.incident_id, silences)
            incident = session.get(IncidentRow, pending.incident_id)
            is_over = incident is None or incident.state == "closed"
        is_unheard = not pending.destination and pending.event == "opened" and (until_ns or pending.was_held)
        if is_over and is_unheard:
            self._writer.do(lambda s: drop_events(s, pending.incident_id, now_ns))
            self.outcomes.count(NOBODY, "silenced")
            return True
        if until_ns is None:
            return False
        self._writer.do(lambda s: change(s, pending.id, next_attempt_ns=until_ns, last_error=HELD))
        return True

    def _deliver(self, client: httpx.Client, destination: Destination, pending: Pending) -> None:
        attempts = pending.attempts + 1
        next_ns = self._clock() + int(pause_seconds(attempts, self._jitter()) * 1e9)
        if not self._writer.do(lambda s: claim(s, pending, next_ns)):
            return
        try:
            outcome = deliver(client, destination, read_notice(pending.body), self._clock() // 10**9)
        except WireError as error:
            outcome = Outcome(False, str(error), is_final=True)
        self._settle(pending, attempts, outcome)

    def _settle(self, pending: Pending, attempts: int, outcome: Outcome) -> None:
        now_ns = self._clock()
        if outcome.delivered:
            self._writer.do(lambda s: change(s, pending.id, state="sent", settled_ns=now_ns, last_error=None))
            self.outcomes.count(pending.destination, "sent")
        elif outcome.is_final or attempts >= ATTEMPTS_MAX:
            told = outcome.error
            self._writer.do(lambda s: change(s, pending.id, state="dead", settled_ns=now_ns, last_error=told))
            self.outcomes.count(pending.destination, "dead")
        else:
            pause = pause_seconds(attempts, self._jitter(), outcome.retry_after_seconds)
            next_ns = now_ns + int(pause * 1e9)
            told = outcome.error
            self._writer.do(lambda s: change(s, pending.id, next_attempt_ns=next_ns, last_error=told))
            self.outcomes.count(pending.destination, "retried")


def _hush() -> None:
    # At INFO httpx writes every address that it posts to, and a webhook's address often is its secret.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
