"""What people change through the API and the page: acknowledgements, silences and maintenance windows."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from replaywatch.collector.access import Caller
from replaywatch.collector.answers import document, problem
from replaywatch.collector.api import incident_document, silence_document
from replaywatch.collector.audit import write_audit
from replaywatch.collector.incidents import Incident, incident_of
from replaywatch.collector.query import checked_text, json_body, moment, path_id
from replaywatch.collector.silences import Silence, add_silence, checked_matchers, end_silence
from replaywatch.collector.tables import IncidentEventRow, IncidentRow
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import ConfigurationError

COMMENT_MAX = 1000


class Changes:
    """Each change is one transaction with its line of the audit trail."""

    def __init__(self, writer: Writer, clock: Callable[[], int]) -> None:
        self._writer = writer
        self._clock = clock

    async def acknowledge(self, request: Request) -> Response:
        """Say that somebody looks after an incident."""
        body = await json_body(request)
        comment = checked_text(body.get("comment", ""), "comment", COMMENT_MAX)
        return await self._acknowledged(request, comment, is_on=True)

    async def unacknowledge(self, request: Request) -> Response:
        """Take an acknowledgement back."""
        return await self._acknowledged(request, "", is_on=False)

    async def silence(self, request: Request) -> Response:
        """Begin a silence or plan a maintenance window."""
        body, now_ns, who = await json_body(request), self._clock(), _who(request)
        if "ends" not in body:
            raise ConfigurationError("a silence needs the time at which it ends")
        kind = checked_text(body.get("kind", "silence"), "kind")
        matchers = {k: checked_text(v, k) for k, v in checked_matchers(body.get("matchers")).items()}
        starts_ns = moment(body["starts"], "starts") if body.get("starts") is not None else now_ns
        ends_ns = moment(body["ends"], "ends")
        comment = checked_text(body.get("comment", ""), "comment", COMMENT_MAX)

        def work(session: Session) -> Silence:
            return add_silence(
                session,
                kind=kind,
                matchers=matchers,
                starts_ns=starts_ns,
                ends_ns=ends_ns,
                comment=comment,
                who=who,
                at_ns=now_ns,
            )

        return document(silence_document(await run_in_threadpool(self._writer.do, work)), 201)

    async def unsilence(self, request: Request) -> Response:
        """End a silence now."""
        key, who, now_ns = path_id(request.path_params["id"]), _who(request), self._clock()
        found = None
        if key is not None:
            found = await run_in_threadpool(self._writer.do, lambda s: end_silence(s, key, who, now_ns))
        return (
            problem(404, "not_found", "there is no such silence")
            if found is None
            else document(silence_document(found))
        )

    def mark(self, incident_id: int, who: str, comment: str, *, is_on: bool) -> Incident | None:
        """Set or take back an acknowledgement; None when there is no such incident. Raises: StoreError."""
        now_ns = self._clock()
        return self._writer.do(lambda s: _mark(s, incident_id, who, comment, now_ns, is_on=is_on))

    async def _acknowledged(self, request: Request, comment: str, *, is_on: bool) -> Response:
        key, who = path_id(request.path_params["id"]), _who(request)
        found = None if key is None else await run_in_threadpool(self.mark, key, who, comment, is_on=is_on)
        if found is None:
            return problem(404, "not_found", "there is no such incident")
        return document(incident_document(found))


def _mark(session: Session, key: int, who: str, comment: str, at_ns: int, *, is_on: bool) -> Incident | None:
    row = session.get(IncidentRow, key, with_for_update=True)
    if row is None:
        return None
    if is_on != (row.acknowledged_ns is not None):
        row.acknowledged_ns, row.acknowledged_by = (at_ns, who) if is_on else (None, None)
        event = "acknowledged" if is_on else "unacknowledged"
        note = f"by {who}: {comment}" if comment else f"by {who}"
        session.add(IncidentEventRow(incident_id=key, at_ns=at_ns, event=event, severity=row.severity, note=note))
        write_audit(session, at_ns, who, f"incident {event}", f"incident {key}", comment)
        session.flush()
    return incident_of(row)


def _who(request: Request) -> str:
    caller: Caller = request.state.caller
    return caller.name
