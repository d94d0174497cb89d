"""The page: fleet, workload, incident, incidents; rendered here, refreshed by a small script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from replaywatch.collector import wording
from replaywatch.collector.access import Caller
from replaywatch.collector.api import ReadApi
from replaywatch.collector.charts import Chart, ladder_chart, mode_chart, share_chart, step_time_chart
from replaywatch.collector.documents import Document, finding_document
from replaywatch.collector.fleet import Views, WorkloadView
from replaywatch.collector.graph_facts import graph_facts
from replaywatch.collector.incidents import Incident, Wanted
from replaywatch.collector.rows import FleetRow, matches, row_of
from replaywatch.collector.runs import runs_of
from replaywatch.collector.series import Point, extent, read_series
from replaywatch.collector.store import Store
from replaywatch.contract.snapshot import Fingerprint
from replaywatch.contract.verdict import severity_rank
from replaywatch.contract.window import Timing

FOLDER: Final = Path(__file__).parent
PAGE_ROWS: Final = 200
MEMBER_ROWS: Final = 500
EVENT_ROWS: Final = 500
SLICES: Final = 90
RANGES_NS: Final = {
    name: seconds * 10**9
    for name, seconds in (("10 min", 600), ("1 h", 3600), ("6 h", 21600), ("24 h", 86400), ("3 d", 259200))
}


class Pages:
    """Renders the pages from the last fleet view and the store."""

    def __init__(self, store: Store, views: Views, api: ReadApi) -> None:
        self._store = store
        self._views = views
        self._api = api
        self._templates = _environment()

    async def fleet(self, request: Request) -> Response:
        """`GET /?verdict=&q=&offset=`."""
        return await run_in_threadpool(self._fleet, request.query_params)

    async def workload(self, request: Request) -> Response:
        """`GET /workloads/{id}?range=`."""
        view = self._views().by_id.get(request.path_params["id"])
        if view is None:
            return self._render("missing.html", "fleet", 404, what="workload")
        return await run_in_threadpool(self._workload, view, request.query_params.get("range"))

    async def incidents(self, request: Request) -> Response:
        """`GET /incidents?state=`."""
        state = request.query_params.get("state", "all")
        states = (state,) if state in ("open", "stale", "closed") else ()
        found = await run_in_threadpool(self._api.find_incidents, Wanted(states=states), PAGE_ROWS)
        return self._render("incidents.html", "incidents", incidents=found, state=state if states else "all")

    async def incident(self, request: Request) -> Response:
        """`GET /incidents/{id}`."""
        found = await run_in_threadpool(self._api.find_incident, request.path_params["id"])
        if found is None:
            return self._render("missing.html", "incidents", 404, what="incident")
        incident, events = found
        caller: Caller = request.state.caller
        members = await run_in_threadpool(self._api.find_members, incident.id, MEMBER_ROWS)
        now_ns = self._views().at_ns
        lasted_ns = max(0, (incident.closed_ns or now_ns) - incident.opened_ns)
        return self._render(
            "incident.html",
            "incidents",
            incident=incident,
            events=events[-EVENT_ROWS:],
            members=members if incident.members > 1 else [],
            may_mark=caller.token is not None and "write" in caller.token.scopes and caller.by_cookie,
            csrf=caller.csrf,
            finding=_whole(incident.finding),
            lasted_ns=lasted_ns,
            lost=_lost(incident.finding, lasted_ns),
        )

    def login(self, after: str, *, is_wrong: bool = False) -> Response:
        """The form that asks for a token."""
        return self._render("login.html", "login", 403 if is_wrong else 200, after=after, is_wrong=is_wrong)

    def _fleet(self, query: Mapping[str, str]) -> Response:
        view = self._views()
        wanted = query.get("verdict", "")
        wanted = wanted if wanted in wording.VERDICT_WORDS else ""
        text = query.get("q", "").strip()[:100]
        offset = int(query.get("offset", "0")) if query.get("offset", "0").isdecimal() else 0
        chosen = [v for v in view.workloads if (not wanted or v.word == wanted) and matches(v, text)]
        tallies = Counter(v.word for v in view.workloads)
        after = {"verdict": wanted, "q": text, "offset": str(offset + PAGE_ROWS)}
        more = "/?" + urlencode({k: v for k, v in after.items() if v})
        return self._render(
            "fleet.html",
            "fleet",
            loss=view.loss,
            total=len(view.workloads),
            unseen=tallies["blind"] + tallies["warming_up"] + tallies["stale"],
            tallies=tallies,
            wanted=wanted,
            q=text,
            chosen=len(chosen),
            rows=[row_of(v) for v in chosen[offset : offset + PAGE_ROWS]],
            more=more if len(chosen) > offset + PAGE_ROWS else None,
            incidents=_worst_first(self._api.find_incidents(Wanted(states=("open", "stale")), PAGE_ROWS)),
        )

    def _workload(self, view: WorkloadView, wanted: str | None) -> Response:
        name, points = self._points(view.id, wanted)
        row: FleetRow = row_of(view)
        dispatch = view.recent.dispatch
        if not dispatch.batch_sizes:
            dispatch = view.lifetime.dispatch
        unit = view.config.capture_unit if view.config is not None else None
        return self._render(
            "workload.html",
            "fleet",
            view=view,
            estimate=view.estimate,
            step_us=row.step_us,
            replayed=row.replayed,
            coverage=view.recent.traced.coverage if view.recent.traced is not None else None,
            busy=view.recent.traced.busy_ratio if view.recent.traced is not None else None,
            active=view.recent.device.active_ratio if view.recent.device is not None else None,
            findings=[finding_document(f) for f in view.judgement.findings],
            charts=_charts(points),
            ranges=tuple(RANGES_NS),
            range_name=name,
            ladder=ladder_chart(dispatch.batch_sizes, dispatch.eager_batch_sizes, view.config),
            ladder_note="" if unit in (None, "sequences") else f"in sequences; the ladder is in {unit}",
            fallbacks=_largest_first(view.recent.dispatch.fallbacks),
            fingerprint=_facts(view.fingerprint),
            incidents=(incidents := self._api.find_incidents(Wanted(workload_id=view.id), 20)),
            marks=[_mark(i) for i in incidents],
            runs=runs_of(view, self._views().workloads),
            times=_times(view.recent.timing),
            graphs=graph_facts(view),
        )

    def _points(self, workload_id: str, wanted: str | None) -> tuple[str, Sequence[Point]]:
        """The chosen range, or the smallest that holds all windows, and its slices."""
        with self._store.reading() as session:
            whole = extent(session, workload_id)
            if whole is None:
                return wanted or "", ()
            first, last = whole
            fitting = next((n for n, ns in RANGES_NS.items() if last - first <= ns), "3 d")
            name = wanted if wanted in RANGES_NS else fitting
            start = max(first, last - RANGES_NS[name])
            return name, read_series(session, workload_id, start, last + 1, SLICES)

    def _render(self, template: str, section: str, status: int = 200, **content: object) -> HTMLResponse:
        text = self._templates.get_template(template).render(
            section=section, now_ns=self._views().at_ns, words=wording.VERDICT_WORDS, **content
        )
        return HTMLResponse(text, status, {"Cache-Control": "no-store"})


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        percent=wording.percent,
        duration=wording.duration_us,
        bytes=wording.size_bytes,
        gpus=wording.gpus,
        span=wording.span,
        ago=wording.ago,
        clock=wording.clock_text,
        evidence=wording.evidence_value,
        count=wording.count,
        prose=wording.prose,
        breaks=wording.breaks,
    )
    environment.globals["words"] = wording.VERDICT_WORDS
    return environment


def _charts(points: Sequence[Point]) -> list[tuple[Chart, str, str]]:
    if not points:
        return []
    charts = []
    if any(p.steps > 0 for p in points):
        charts.append((share_chart(points, lambda p: p.replayed_ratio, "", "steps replayed"), "Steps replayed", ""))
        charts.append((mode_chart(points), "Steps by mode", ""))
    if any(p.step_us is not None for p in points):
        charts.append((step_time_chart(points), "Step time", "mean"))
    if any(p.kernel_coverage is not None for p in points):
        chart = share_chart(points, lambda p: p.kernel_coverage, "", "kernel coverage")
        charts.append((chart, "Kernels from graphs", "of those traced"))
    if any(p.busy_ratio is not None for p in points):
        charts.append((share_chart(points, lambda p: p.busy_ratio, "busy", "GPU busy"), "GPU busy", "while traced"))
    return charts


def _worst_first(incidents: list[Incident]) -> list[Incident]:
    return sorted(incidents, key=lambda i: (i.state != "open", -severity_rank(i.severity), -i.opened_ns, -i.id))


def _times(timing: Timing) -> list[tuple[str, str]]:
    """Median and 99th percentile of what was timed lately."""
    kinds = (
        ("device time of a replay", timing.replay),
        ("idle after a replay", timing.replay_gap),
        ("idle between kernels", timing.launch_gap),
        ("between two forwards", timing.between_forwards),
        ("capture", timing.capture),
    )
    found = []
    for name, histogram in kinds:
        if histogram is not None and histogram.count:
            half, most = (wording.duration_us((histogram.quantile(q) or 0.0) / 1000) for q in (0.5, 0.99))
            found.append((name, f"{half}, 99{wording.GAP}% within {most}"))
    return found


def _mark(incident: Incident) -> dict[str, object]:
    """An incident as charts mark it."""
    return {
        "from": incident.opened_ns / 1e9,
        "to": None if incident.closed_ns is None else incident.closed_ns / 1e9,
        "severity": incident.worst_severity,
        "id": incident.id,
    }


def _facts(fingerprint: Fingerprint | None) -> list[tuple[str, str]]:
    if fingerprint is None:
        return []
    pairs = ((f.name.replace("_", " "), getattr(fingerprint, f.name)) for f in fields(fingerprint))
    return [(name, str(value)) for name, value in pairs if value is not None]


def _largest_first(counts: Mapping[str, int] | None) -> list[tuple[str, int]]:
    shown = ((name.replace("_", " "), steps) for name, steps in (counts or {}).items() if steps > 0)
    return sorted(shown, key=lambda item: -item[1])[:20]


def _whole(finding: Document) -> Document:
    """The finding with every key that the template reads."""
    return {"cost": None, "causes": [], "remedy": None, "votes": [], "evidence": [], **finding}


def _lost(finding: Document, lasted_ns: int) -> tuple[str, str] | None:
    """GPU time lost in a length of time, and its bounds, as texts; None where the cost is unknown."""
    cost = finding.get("cost")
    if not isinstance(cost, Mapping):
        return None
    low, mid, high = (wording.span(int(float(cost[k]) * lasted_ns)) for k in ("low", "ratio", "high"))
    return mid, f"of one GPU, {low} to {high}"
