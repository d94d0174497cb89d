"""The JSON read API, version 1."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from replaywatch.collector.answers import document, problem
from replaywatch.collector.audit import AuditLine, read_audit
from replaywatch.collector.clocks import Clocks
from replaywatch.collector.documents import Document, finding_document, time_text, view_document
from replaywatch.collector.fleet import Views
from replaywatch.collector.incidents import (
    STATES,
    Incident,
    IncidentEvent,
    Member,
    Wanted,
    count_incidents,
    find_incident,
    find_incidents,
    find_members,
)
from replaywatch.collector.query import LAST_ID, many_of, number, one_of, path_id, text_of
from replaywatch.collector.rows import matches
from replaywatch.collector.series import Point, extent, read_series
from replaywatch.collector.silences import Silence, find_silences
from replaywatch.collector.store import Store
from replaywatch.collector.times import parse_time_ns

LIMIT_MAX: Final = 1000
VERDICTS: Final = ("finding", "blind", "warming_up", "healthy", "stale")
SEVERITIES: Final = ("info", "warn", "page")


class ReadApi:
    """Answers questions from the last fleet view and the store."""

    def __init__(self, store: Store, views: Views, clocks: Clocks) -> None:
        self._store = store
        self._views = views
        self._clocks = clocks

    async def workloads(self, request: Request) -> Response:
        """Those that need people first."""
        limit, offset = number(request, "limit", 100, LIMIT_MAX), number(request, "offset", 0, LAST_ID)
        wanted, words = one_of(request, "verdict", VERDICTS), text_of(request, "q") or ""
        fields = {name: text_of(request, name) for name in ("namespace", "node", "model_name", "engine")}
        view = self._views()
        chosen = [
            w
            for w in view.workloads
            if (wanted is None or w.word == wanted)
            and all(v is None or getattr(w.workload, k) == v for k, v in fields.items())
            and matches(w, words)
        ]
        page = [view_document(w) for w in chosen[offset : offset + limit]]
        content = {"loss": asdict(view.loss), "workloads": page}
        return document({"at": time_text(view.at_ns), **_page(len(chosen), offset, len(page)), **content})

    async def workload(self, request: Request) -> Response:
        """One workload with its verdict, in full."""
        view = self._views().by_id.get(request.path_params["id"])
        return _no_such("workload") if view is None else document(view_document(view))

    async def windows(self, request: Request) -> Response:
        """Sums over slices of time, for charts."""
        key = request.path_params["id"]
        points = number(request, "points", 120, LIMIT_MAX, least=1)
        bounds = {name: request.query_params.get(name) for name in ("from", "to")}
        given = {name: parse_time_ns(text, name) for name, text in bounds.items() if text is not None}
        found = await run_in_threadpool(self._series, key, given.get("from"), given.get("to"), points)
        if found is None:
            return _no_such("workload, or it has no windows left")
        return document({"points": [point_document(p) for p in found]})

    async def incidents(self, request: Request) -> Response:
        """Those last changed first."""
        limit, offset = number(request, "limit", 100, LIMIT_MAX), number(request, "offset", 0, LAST_ID)
        wanted = Wanted(
            states=many_of(request, "state", STATES),
            workload_id=text_of(request, "workload"),
            detector=text_of(request, "detector"),
            severity=one_of(request, "severity", SEVERITIES),
        )
        found, total = await run_in_threadpool(self._incidents, wanted, limit, offset)
        return document({**_page(total, offset, len(found)), "incidents": [incident_document(i) for i in found]})

    async def incident(self, request: Request) -> Response:
        """One incident, with its history."""
        found = await run_in_threadpool(self.find_incident, request.path_params["id"])
        if found is None:
            return _no_such("incident")
        incident, events = found
        history = [{"at": time_text(e.at_ns), "event": e.event, "severity": e.severity, "note": e.note} for e in events]
        return document({**incident_document(incident), "history": history})

    async def members(self, request: Request) -> Response:
        """The workloads of one incident, in the order in which they joined it."""
        limit, offset = number(request, "limit", 100, LIMIT_MAX), number(request, "offset", 0, LAST_ID)
        found = await run_in_threadpool(self.find_incident, request.path_params["id"])
        if found is None:
            return _no_such("incident")
        members = await run_in_threadpool(self.find_members, found[0].id, limit, offset)
        page = _page(found[0].members, offset, len(members))
        return document({**page, "members": [member_document(m) for m in members]})

    async def silences(self, request: Request) -> Response:
        """Silences and maintenance windows, newest first."""
        limit, offset = number(request, "limit", 100, LIMIT_MAX), number(request, "offset", 0, LAST_ID)
        found = await run_in_threadpool(self._silences, limit, offset)
        return document({"silences": [silence_document(s) for s in found]})

    async def audit(self, request: Request) -> Response:
        """Who changed what, newest first."""
        limit, before = number(request, "limit", 100, LIMIT_MAX), number(request, "before", LAST_ID, LAST_ID)
        found = await run_in_threadpool(self._audit, limit, before)
        lines = [{**asdict(line), "at": time_text(line.at_ns)} for line in found]
        return document({"audit": [{k: v for k, v in line.items() if k != "at_ns"} for line in lines]})

    async def senders(self, _request: Request) -> Response:
        """Nodes that batches came from, with how far their clocks are off."""
        rows = [
            {"node": s.node, "last_received": time_text(s.last_received_ns), "clock_skew_seconds": s.skew_ns / 1e9}
            for s in self._clocks.senders()
        ]
        return document({"senders": rows})

    def find_incident(self, text: str) -> tuple[Incident, list[IncidentEvent]] | None:
        """The incident that a path names, with its history; None when there is none. Raises: StoreError."""
        key = path_id(text)
        if key is None:
            return None
        with self._store.reading() as session:
            found = find_incident(session, key)
        return None if found is None else (self._current(found[0]), found[1])

    def find_incidents(self, wanted: Wanted, limit: int, offset: int = 0) -> list[Incident]:
        """Incidents, those last changed first. Raises: StoreError."""
        with self._store.reading() as session:
            found = find_incidents(session, wanted, limit, offset)
        return [self._current(incident) for incident in found]

    def find_members(self, incident_id: int, limit: int, offset: int = 0) -> list[Member]:
        """Workloads of an incident. Raises: StoreError."""
        with self._store.reading() as session:
            return find_members(session, incident_id, limit, offset)

    def _incidents(self, wanted: Wanted, limit: int, offset: int) -> tuple[list[Incident], int]:
        with self._store.reading() as session:
            total = count_incidents(session, wanted)
        return self.find_incidents(wanted, limit, offset), total

    def _silences(self, limit: int, offset: int) -> list[Silence]:
        with self._store.reading() as session:
            return find_silences(session, limit=limit, offset=offset)

    def _audit(self, limit: int, before: int) -> list[AuditLine]:
        with self._store.reading() as session:
            return read_audit(session, limit, before)

    def _current(self, incident: Incident) -> Incident:
        """The incident with what is known now, while it is open and its finding is seen."""
        view = self._views().by_id.get(incident.workload_id)
        if view is None or view.is_stale or incident.state != "open":
            return incident
        seen = (f for f in view.judgement.findings if f.detector == incident.detector and f.is_fault)
        finding = next(seen, None)
        return incident if finding is None else replace(incident, finding=finding_document(finding), is_current=True)

    def _series(self, key: str, from_ns: int | None, to_ns: int | None, points: int) -> list[Point] | None:
        with self._store.reading() as session:
            whole = extent(session, key)
            if whole is None:
                return None
            first = whole[0] if from_ns is None else from_ns
            last = whole[1] + 1 if to_ns is None else to_ns
            return read_series(session, key, first, last, points) if last > first else []


def _page(total: int, offset: int, here: int) -> Document:
    """How much there is, and where the next page begins; null on the last one."""
    after = offset + here
    return {"total": total, "next_offset": after if 0 < after < total and here else None}


def point_document(point: Point) -> Document:
    """One slice of a series."""
    return {
        "start": time_text(point.start_ns),
        "end": time_text(point.end_ns),
        "windows": point.windows,
        "steps": {"full": point.full_steps, "piecewise": point.piecewise_steps, "eager": point.eager_steps},
        "replayed_ratio": point.replayed_ratio,
        "kernel_coverage": point.kernel_coverage,
        "gpu_busy_ratio": point.busy_ratio,
        "step_us": point.step_us,
        "padding_ratio": point.padding_ratio,
    }


def incident_document(incident: Incident) -> Document:
    """An incident."""
    return {
        "id": incident.id,
        "state": incident.state,
        "detector": incident.detector,
        "severity": incident.severity,
        "worst_severity": incident.worst_severity,
        "workload": {"id": incident.workload_id, "label": incident.workload_label},
        "group_key": incident.group_key,
        "members": incident.members,
        "open_members": incident.open_members,
        "acknowledged": time_text(incident.acknowledged_ns),
        "acknowledged_by": incident.acknowledged_by,
        "opened": time_text(incident.opened_ns),
        "changed": time_text(incident.changed_ns),
        "closed": time_text(incident.closed_ns),
        "finding": incident.finding,
        "finding_is_current": incident.is_current,
    }


def member_document(member: Member) -> Document:
    """A workload's part in an incident."""
    return {
        "workload": {"id": member.workload_id, "label": member.workload_label},
        "state": member.state,
        "severity": member.severity,
        "worst_severity": member.worst_severity,
        "opened": time_text(member.opened_ns),
        "closed": time_text(member.closed_ns),
    }


def silence_document(silence: Silence) -> Document:
    """A silence or maintenance window."""
    return {
        "id": silence.id,
        "kind": silence.kind,
        "matchers": dict(silence.matchers),
        "starts": time_text(silence.starts_ns),
        "ends": time_text(silence.ends_ns),
        "comment": silence.comment,
        "created": time_text(silence.created_ns),
        "created_by": silence.created_by,
    }


def _no_such(what: str) -> Response:
    return problem(404, "not_found", f"there is no such {what}")
