"""The JSON read API, version 1."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from replaywatch.collector.answers import document, problem
from replaywatch.collector.detection import Detection
from replaywatch.collector.documents import Document, finding_document, time_text, view_document
from replaywatch.collector.incidents import Incident, IncidentEvent, find_incident, find_incidents
from replaywatch.collector.series import Point, extent, read_series
from replaywatch.collector.store import Store
from replaywatch.collector.times import parse_time_ns
from replaywatch.contract.errors import ConfigurationError

LIMIT_MAX: Final = 1000
STATES: Final = ("open", "stale", "closed")
LAST_ID: Final = (1 << 63) - 1


class ReadApi:
    """Answers questions from the last fleet view and the store."""

    def __init__(self, store: Store, detection: Detection) -> None:
        self._store = store
        self._detection = detection

    async def workloads(self, request: Request) -> Response:
        """`GET /v1/workloads?verdict=&limit=&offset=`: those that need people first."""
        limit, offset = _number(request, "limit", 100, LIMIT_MAX), _number(request, "offset", 0, LAST_ID)
        wanted = request.query_params.get("verdict")
        view = self._detection.view
        chosen = [w for w in view.workloads if wanted is None or w.word == wanted]
        page = [view_document(w) for w in chosen[offset : offset + limit]]
        loss = asdict(view.loss)
        return document({"at": time_text(view.at_ns), "total": len(chosen), "loss": loss, "workloads": page})

    async def workload(self, request: Request) -> Response:
        """`GET /v1/workloads/{id}`."""
        view = self._detection.view.by_id.get(request.path_params["id"])
        return _no_such("workload") if view is None else document(view_document(view))

    async def windows(self, request: Request) -> Response:
        """`GET /v1/workloads/{id}/windows?from=&to=&points=`: sums over slices of time, for charts."""
        key = request.path_params["id"]
        points = _number(request, "points", 120, LIMIT_MAX)
        bounds = {name: request.query_params.get(name) for name in ("from", "to")}
        given = {name: parse_time_ns(text, name) for name, text in bounds.items() if text is not None}
        found = await run_in_threadpool(self._series, key, given.get("from"), given.get("to"), points)
        if found is None:
            return _no_such("workload, or it has no windows left")
        return document({"points": [point_document(p) for p in found]})

    async def incidents(self, request: Request) -> Response:
        """`GET /v1/incidents?state=&workload=&limit=`: those last changed first."""
        states = tuple(request.query_params.getlist("state"))
        if any(s not in STATES for s in states):
            raise ConfigurationError(f"state must be one of {', '.join(STATES)}")
        limit = _number(request, "limit", 100, LIMIT_MAX)
        workload = request.query_params.get("workload")
        found = await run_in_threadpool(self.find_incidents, states, workload, limit)
        return document({"incidents": [incident_document(i) for i in found]})

    async def incident(self, request: Request) -> Response:
        """`GET /v1/incidents/{id}`, with its history."""
        found = await run_in_threadpool(self.find_incident, request.path_params["id"])
        if found is None:
            return _no_such("incident")
        incident, events = found
        history = [{"at": time_text(e.at_ns), "event": e.event, "severity": e.severity, "note": e.note} for e in events]
        return document({**incident_document(incident), "history": history})

    def find_incident(self, text: str) -> tuple[Incident, list[IncidentEvent]] | None:
        """The incident that a path names, with its history; None when there is none. Raises: StoreError."""
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LAST_ID):
            return None
        with self._store.reading() as session:
            found = find_incident(session, int(text))
        return None if found is None else (self._current(found[0]), found[1])

    def find_incidents(self, states: tuple[str, ...], workload_id: str | None, limit: int) -> list[Incident]:
        """Incidents, those last changed first. Raises: StoreError."""
        with self._store.reading() as session:
            found = find_incidents(session, states=states, workload_id=workload_id, limit=limit)
        return [self._current(incident) for incident in found]

    def _current(self, incident: Incident) -> Incident:
        """The incident with what is known now, while it is open and its finding is seen."""
        view = self._detection.view.by_id.get(incident.workload_id)
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
        "opened": time_text(incident.opened_ns),
        "changed": time_text(incident.changed_ns),
        "closed": time_text(incident.closed_ns),
        "finding": incident.finding,
        "finding_is_current": incident.is_current,
    }


def _number(request: Request, name: str, default: int, greatest: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= greatest):
        raise ConfigurationError(f"{name} must be a whole number from 0 to {greatest}")
    return int(text)


def _no_such(what: str) -> Response:
    return problem(404, "not_found", f"there is no such {what}")
