"""Dashboards as data: variables, annotations, links and rows of panels; and their JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from replaywatch.contract.errors import ConfigurationError
from replaywatch.dashboards.panel import SOURCE, Panel, panel_json
from replaywatch.dashboards.panel_kinds import Json

TAG: Final = "replaywatch"
WIDTH: Final = 24
# The layout of Grafana 10.4; later releases bring it up to date when they load it.
SCHEMA_VERSION: Final = 39


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top: values of a label of a series. `chain` are the variables that narrow it."""

    name: str
    label: str
    metric: str
    chain: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """Events drawn into every graph: where an expression has a value."""

    name: str
    expr: str
    title: str
    text: str
    color: str


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with its panels, laid out from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard. `uid` is its stable name in addresses, at most 40 characters."""

    uid: str
    title: str
    help: str
    variables: tuple[Variable, ...]
    marks: tuple[Mark, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)


NAMESPACE: Final = Variable("namespace", "namespace", "cudagraph_workload_info", (), "Namespace")
ENGINE: Final = Variable("engine", "engine", "cudagraph_workload_info", ("namespace",), "Engine")
MODEL: Final = Variable("model", "model_name", "cudagraph_workload_info", ("namespace", "engine"), "Model")
POD: Final = Variable("pod", "pod", "cudagraph_workload_info", ("namespace", "engine", "model"), "Pod")
NODE: Final = Variable("node", "node", "replaywatch_agent_info", (), "Node")
WORK: Final = (NAMESPACE, ENGINE, MODEL, POD)
# Matchers that every panel about workloads carries.
CHOSEN: Final = 'namespace=~"$namespace", engine=~"$engine", model_name=~"$model", pod=~"$pod"'
INCIDENTS: Final = Mark(
    "Incidents",
    'max by (alertname, namespace, model_name, severity) (ALERTS{alertname=~"CudaGraph.*", alertstate="firing", '
    'namespace=~"$namespace", model_name=~"$model"})',
    "{{alertname}}",
    "{{namespace}} {{model_name}} ({{severity}})",
    "red",
)
_CONFIG: Final = f"count by (namespace, pod, config, resolved_mode) (cudagraph_workload_info{{{CHOSEN}}}"
CONFIG_CHANGES: Final = Mark(
    "Config changes",
    f"{_CONFIG}) unless {_CONFIG} offset 5m)",
    "Configuration of {{pod}}",
    "{{namespace}}/{{pod}}: mode {{resolved_mode}}, configuration {{config}}",
    "blue",
)
MARKS: Final = (INCIDENTS, CONFIG_CHANGES)


def board_json(board: Board) -> Json:
    """The dashboard. Raises: ConfigurationError for panels that share an id or do not fit."""
    ids = [panel.id for panel in board.panels]
    if len(set(ids)) != len(ids):
        raise ConfigurationError(f"two panels of {board.uid} have one id; give one of them another title")
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.help,
        "tags": [TAG, "cuda-graphs", "gpu"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source_choice(), *map(_choice, board.variables)]},
        "annotations": {"list": [_annotation(mark) for mark in board.marks]},
        "links": [_link()],
        "panels": _laid_out(board),
    }


def board_text(board: Board) -> str:
    """The dashboard's file: keys sorted, so that a change of the generator shows as a change of meaning only."""
    return json.dumps(board_json(board), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _laid_out(board: Board) -> list[Json]:
    placed: list[Json] = []
    y = 0
    for number, row in enumerate(board.rows):
        placed.append(
            {
                "id": 2_000_000 + number,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            placed.append(panel_json(panel, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return placed


def _source_choice() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "regex": "",
        "skipUrlSync": False,
    }


def _choice(variable: Variable) -> Json:
    known = {v.name: v.label for v in (*WORK, NODE)}
    narrowed = ", ".join(f'{known[name]}=~"${name}"' for name in variable.chain)
    query = f"label_values({variable.metric}{{{narrowed}}}, {variable.label})" if narrowed else ""
    query = query or f"label_values({variable.metric}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.title or variable.name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Also matches workloads of which the label is empty.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "options": [],
        "hide": 0,
        "regex": "",
        "skipUrlSync": False,
    }


def _annotation(mark: Mark) -> Json:
    return {
        "name": mark.name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": mark.color,
        "target": {"expr": mark.expr, "refId": "Anno", "interval": ""},
        "titleFormat": mark.title,
        "textFormat": mark.text,
    }


def _link() -> Json:
    return {
        "title": "Replaywatch",
        "type": "dashboards",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "The other dashboards, for the same choice and time",
        "url": "",
    }
