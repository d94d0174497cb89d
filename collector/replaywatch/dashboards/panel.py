"""Panels as data, and the JSON that Grafana wants of them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from replaywatch.contract.metrics import EXEMPLIFIED
from replaywatch.dashboards.panel_kinds import Json, Kind, options

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# Severity, verdict and mode keep their colours everywhere.
PALETTE: Final = {
    "finding": "red",
    "page": "dark-red",
    "warn": "orange",
    "info": "blue",
    "healthy": "green",
    "warming_up": "yellow",
    "blind": "purple",
    "full": "green",
    "piecewise": "yellow",
    "eager": "red",
    "other": "text",
}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression. `legend` is a template over labels; `is_instant` asks for now only, as tables and stats do."""

    expr: str
    legend: str = "__auto"
    is_instant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `width` is of 24 columns. `steps` are (from, color) of thresholds. `drill` is a dashboard's uid.

    `columns` are the labels that a table shows, in order; its value comes last.
    """

    title: str
    kind: Kind
    queries: tuple[Query, ...]
    help: str
    unit: str = "short"
    width: int = 8
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ()
    is_stacked: bool = False
    low: float | None = None
    high: float | None = None
    columns: tuple[str, ...] = ()
    value_name: str = "value"
    drill: str | None = None
    colored: bool = False

    @property
    def id(self) -> int:
        """A number that stays when panels are moved or added: made from the title."""
        return zlib.crc32(self.title.encode()) % 1_000_000 + 1


def panel_json(panel: Panel, x: int, y: int) -> Json:
    """The panel at a place of the grid."""
    return {
        "id": panel.id,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [_target(panel, q, chr(ord("A") + n)) for n, q in enumerate(panel.queries)],
        "fieldConfig": _fields(panel),
        "options": options(panel.kind, panel.unit, panel.value_name),
        "transformations": _transformations(panel),
    }


def _target(panel: Panel, query: Query, letter: str) -> Json:
    instant = query.is_instant or panel.kind in ("table", "stat", "bargauge")
    form = {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series")
    has_examples = panel.kind == "timeseries" and any(name in query.expr for name in EXEMPLIFIED)
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": instant,
        "range": not instant,
        **({"exemplar": True} if has_examples else {}),
        "format": form,
        "editorMode": "code",
    }


def _fields(panel: Panel) -> Json:
    steps = panel.steps or ((None, "green"),)
    defaults: Json = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if panel.kind in ("stat", "bargauge", "table") else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": [{"value": v, "color": c} for v, c in steps]},
        "custom": _custom(panel),
        "noValue": "none",
    }
    if panel.low is not None:
        defaults["min"] = panel.low
    if panel.high is not None:
        defaults["max"] = panel.high
    if panel.drill is not None:
        defaults["links"] = [_drill(panel.drill, panel.columns)]
    return {"defaults": defaults, "overrides": _overrides(panel)}


def _custom(panel: Panel) -> Json:
    if panel.kind == "timeseries":
        return {
            "drawStyle": "line",
            "fillOpacity": 30 if panel.is_stacked else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
        }
    if panel.kind == "table":
        return {"align": "auto", "filterable": True}
    return {}


def _overrides(panel: Panel) -> list[Json]:
    if not panel.colored:
        return []
    return [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for name, color in sorted(PALETTE.items())
    ]


def _transformations(panel: Panel) -> list[Json]:
    """A table shows its columns in order, its value under a name, and nothing else."""
    if panel.kind != "table":
        return []
    order = {name: n for n, name in enumerate((*panel.columns, "Value"))}
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(order)}}},
        {"id": "organize", "options": {"indexByName": order, "renameByName": {"Value": panel.value_name}}},
    ]


def _drill(uid: str, columns: tuple[str, ...]) -> Json:
    """A link to another dashboard about the same thing and the same time."""
    carried = [
        f"var-{'model' if c == 'model_name' else c}=${{__data.fields.{c}}}"
        for c in columns
        if c in ("namespace", "pod", "model_name", "engine", "node", "detector")
    ]
    query = "&".join(["var-datasource=${datasource}", *carried, "${__url_time_range}"])
    return {"title": f"Open {uid.removeprefix('replaywatch-')}", "url": f"/d/{uid}?{query}", "targetBlank": False}
