"""Repeating open incidents to an Alertmanager, which forgets them when it restarts and when nobody repeats them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import httpx
from sqlalchemy.orm import Session

from replaywatch.collector.incidents import Incident, Wanted, find_incidents
from replaywatch.collector.recording import Message, worst_workload
from replaywatch.collector.silences import find_silences, silenced_until_ns
from replaywatch.collector.store import Store
from replaywatch.contract.verdict import severity_rank
from replaywatch.notify.alertmanager import Alertmanager
from replaywatch.notify.destination import TIMEOUT_SECONDS
from replaywatch.notify.notice import Notice, read_notice

LOG = logging.getLogger("replaywatch.collector")
OPEN_MAX: Final = 5000
CHUNK: Final = 200


class Standing:
    """Posts every open incident again; one thread calls it each minute."""

    def __init__(self, store: Store, destination: Alertmanager, message: Message, clock: Callable[[], int]) -> None:
        self._store = store
        self._destination = destination
        self._message = message
        self._clock = clock

    def repeat(self) -> int:
        """Post what is open and not silenced; how many incidents. Raises: StoreError."""
        with self._store.reading() as session:
            notices = list(self._notices(session))
        unix_seconds, rest = self._clock() // 10**9, iter(notices)
        with httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False) as client:
            while chunk := list(islice(rest, CHUNK)):
                posting = self._destination.standing(chunk, unix_seconds)
                headers = {"Content-Type": "application/json", **posting.headers}
                try:
                    status = client.post(posting.url, content=posting.body, headers=headers).status_code
                except httpx.HTTPError as error:
                    LOG.warning("open incidents were not repeated to Alertmanager (%s)", type(error).__name__)
                    return 0
                if status != httpx.codes.OK:
                    LOG.warning("Alertmanager answered %s to open incidents", status)
        return len(notices)

    def _notices(self, session: Session) -> Iterator[Notice]:
        silences = find_silences(session, at_ns=self._clock(), limit=1000)
        for incident in find_incidents(session, Wanted(states=("open", "stale")), OPEN_MAX):
            if self._is_told(incident) and silenced_until_ns(session, incident.id, silences) is None:
                who = worst_workload(session, incident.id, incident.workload_id, incident.workload_label)
                yield read_notice(self._message("opened", incident, who, f"standing-{incident.id}"))

    def _is_told(self, incident: Incident) -> bool:
        return severity_rank(incident.worst_severity) >= severity_rank(self._destination.least)
