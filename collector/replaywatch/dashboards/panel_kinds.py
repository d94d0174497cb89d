"""How each kind of panel draws: the options that Grafana's panels document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

Json = dict[str, Any]
Kind = Literal["stat", "timeseries", "table", "bargauge", "heatmap", "state-timeline"]
_LAST: Final[Json] = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def options(kind: Kind, unit: str, value_name: str) -> Json:
    """The options of a panel; `value_name` is the column that a table is sorted by."""
    return _KINDS[kind](unit, value_name)


def _stat(_unit: str, _value: str) -> Json:
    return {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _LAST,
        "textMode": "auto",
    }


def _bars(_unit: str, _value: str) -> Json:
    return {"displayMode": "basic", "orientation": "horizontal", "reduceOptions": _LAST, "showUnfilled": True}


def _lines(_unit: str, _value: str) -> Json:
    return {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _table(_unit: str, value: str) -> Json:
    return {"showHeader": True, "cellHeight": "sm", "sortBy": [{"desc": True, "displayName": value}]}


def _heat(unit: str, _value: str) -> Json:
    return {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Blues",
            "steps": 64,
            "reverse": False,
            "exponent": 0.5,
            "fill": "blue",
        },
        "yAxis": {"unit": unit, "reverse": False},
        "tooltip": {"mode": "single", "yHistogram": True},
        "legend": {"show": True},
        "showValue": "never",
    }


def _states(_unit: str, _value: str) -> Json:
    return {
        "alignValue": "left",
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False},
        "tooltip": {"mode": "single", "sort": "none"},
    }


_KINDS: Final[Mapping[Kind, Callable[[str, str], Json]]] = {
    "stat": _stat,
    "bargauge": _bars,
    "timeseries": _lines,
    "table": _table,
    "heatmap": _heat,
    "state-timeline": _states,
}
