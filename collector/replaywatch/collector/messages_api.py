"""The outbox as people see it: what waits, what was sent, and what was given up with the receiver's answer."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from replaywatch.collector.answers import document
from replaywatch.collector.documents import Document, time_text
from replaywatch.collector.outbox import KEY_LENGTH, STATES, find_messages
from replaywatch.collector.query import LAST_ID, many_of, number, text_of
from replaywatch.collector.store import Store
from replaywatch.collector.tables import NotificationRow

LIMIT_MAX = 1000


class MessagesApi:
    """Reads the outbox."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def notifications(self, request: Request) -> Response:
        """`GET /v1/notifications?state=&destination=&limit=&offset=`: newest first, without bodies."""
        states = many_of(request, "state", STATES)
        destination = text_of(request, "destination")
        limit, offset = number(request, "limit", 100, LIMIT_MAX), number(request, "offset", 0, LAST_ID)
        found = await run_in_threadpool(self._find, states, destination, limit, offset)
        return document({"notifications": found})

    def _find(self, states: tuple[str, ...], destination: str | None, limit: int, offset: int) -> list[Document]:
        with self._store.reading() as session:
            return [message_document(row) for row in find_messages(session, states, destination, limit, offset)]


def message_document(row: NotificationRow) -> Document:
    """One message. `error` is what the receiver said last, without secrets."""
    return {
        "id": row.id,
        "incident": row.incident_id,
        "destination": row.idempotency_key[KEY_LENGTH + 1 :] or None,
        "event": row.event,
        "state": row.state,
        "attempts": row.attempts,
        "created": time_text(row.created_ns),
        "next_attempt": time_text(row.next_attempt_ns) if row.state in ("pending", "sending") else None,
        "settled": time_text(row.settled_ns),
        "error": row.last_error,
    }
