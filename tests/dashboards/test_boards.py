"""The dashboards: fresh, well-formed, valid by Grafana's published types, and every query returns data."""

from __future__ import annotations

import json
import re
import urllib.request
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dashboards.programs import needs_servers
from dashboards.schema_check import needs_schema, type_errors
from dashboards.stage import Stage, until
from replaywatch.contract.metrics import CATALOGUE, EXEMPLIFIED
from replaywatch.dashboards.artifacts import artifacts
from replaywatch.dashboards.board import Board, board_json, board_text
from replaywatch.dashboards.boards import BOARDS
from replaywatch.dashboards.rule import Record
from replaywatch.dashboards.rules import groups

ROOT = Path(__file__).parents[2]
CHOICES = {"namespace": ".*", "engine": ".*", "model": ".*", "pod": ".*", "node": ".*", "__rate_interval": "10s"}
PANELS = [(b.uid, p.title, q.expr) for b in BOARDS for p in b.panels for q in p.queries]
MARKS = sorted({(m.name, m.expr) for b in BOARDS for m in b.marks if m.name != "Restarts"})
IDS = [f"{uid}: {title} {n}" for n, (uid, title, _) in enumerate(PANELS)]


def filled(expr: str) -> str:
    """The expression with every variable chosen."""
    text = re.sub(r"\$(\w+)", lambda m: CHOICES[m[1]], expr)
    assert "$" not in text
    return text


def test_everything_generated_is_fresh() -> None:
    stale = [name for name, text in artifacts().items() if (ROOT / name).read_text() != text]
    assert not stale, "run dashboards/generate.py"


@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.uid)
def test_files_are_sorted_and_ids_do_not_change_with_the_order(board: Board) -> None:
    content = json.loads(board_text(board))
    assert board_text(board) == json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    moved = Board(
        uid=board.uid,
        title=board.title,
        help=board.help,
        variables=board.variables,
        marks=board.marks,
        rows=board.rows[::-1],
    )
    ids = {p["title"]: p["id"] for p in board_json(board)["panels"] if p["type"] != "row"}
    assert ids == {p["title"]: p["id"] for p in board_json(moved)["panels"] if p["type"] != "row"}
    assert len(board.uid) <= 40


@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.uid)
def test_panels_lie_within_the_grid_and_not_on_one_another(board: Board) -> None:
    places = [p["gridPos"] for p in board_json(board)["panels"]]
    assert all(g["x"] >= 0 and g["x"] + g["w"] <= 24 for g in places)
    for a, b in combinations(places, 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_y = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_x or apart_y


@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.uid)
def test_links_lead_to_dashboards_and_variables_that_exist(board: Board) -> None:
    known = {b.uid: {"datasource", *(v.name for v in b.variables)} for b in BOARDS}
    for panel in board_json(board)["panels"]:
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", []):
            uid, given = re.fullmatch(r"/d/([\w-]+)\?(.*)", link["url"]).groups()  # type: ignore[union-attr]
            assert uid in known
            columns = set(panel["transformations"][0]["options"]["include"]["names"])
            assert set(re.findall(r"__data\.fields\.(\w+)", given)) <= columns


@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.uid)
def test_every_panel_says_what_it_shows(board: Board) -> None:
    assert all(len(panel.help) > 8 for panel in board.panels)
    assert len({panel.title for panel in board.panels}) == len(board.panels)


def test_queries_use_only_series_that_somebody_exposes() -> None:
    known = {r.name for g in groups() for r in g.rules if isinstance(r, Record)} | {"DCGM_FI_DEV_GPU_UTIL"}
    for metric in CATALOGUE:
        known |= {
            metric.name,
            *(f"{metric.name}_{s}" for s in ("bucket", "sum", "count") if metric.kind == "histogram"),
        }
    for uid, title, expr in PANELS:
        used = set(re.findall(r"\b(?:\w+:)?(?:cudagraph|replaywatch)_[\w:]+", expr))
        assert used <= known, (uid, title, used - known)


@needs_schema
def test_dashboards_are_of_grafanas_published_types(tmp_path: Path) -> None:
    assert type_errors(tmp_path, [board_json(board) for board in BOARDS]) == ""


@needs_schema
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("refresh",), 3),
        (("panels", 1, "options", "colourMode"), "value"),
        (("panels", 1, "options", "colorMode"), "x"),
    ],
)
def test_the_check_of_types_finds_what_is_wrong(tmp_path: Path, path: tuple[Any, ...], value: object) -> None:
    content: Any = board_json(BOARDS[0])
    at = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert "error TS" in type_errors(tmp_path, [content])


@needs_servers
@pytest.mark.parametrize(("uid", "title", "expr"), PANELS, ids=IDS)
def test_every_query_returns_data(running: Stage, uid: str, title: str, expr: str) -> None:
    until(lambda: running.prometheus.query(filled(expr)))


@needs_servers
@pytest.mark.parametrize(("name", "expr"), MARKS)
def test_every_annotation_returns_data(running: Stage, name: str, expr: str) -> None:
    until(lambda: running.prometheus.query(filled(expr)))


@needs_servers
@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.uid)
def test_every_variable_has_values(running: Stage, board: Board) -> None:
    for variable in board.variables:
        until(lambda v=variable: running.prometheus.query(f"count by ({v.label}) ({v.metric})"))


@needs_servers
@pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.uid)
def test_tables_show_labels_that_their_series_have(running: Stage, board: Board) -> None:
    for panel in board.panels:
        if panel.kind == "table":
            until(lambda p=panel: running.prometheus.query(filled(p.queries[0].expr)))
            found = running.prometheus.query(filled(panel.queries[0].expr))
            labels = {name for sample in found for name in sample["metric"]}
            assert set(panel.columns) - labels <= {"rank"}, panel.title


@needs_servers
def test_the_documented_join_with_dcgm_exporter_returns_data(running: Stage) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    (join,) = re.findall(r"`(cudagraph_device_busy_ratio \* on [^`]*)`", page)
    until(lambda: running.prometheus.query(join))


EXEMPLIFIED_PANELS = [
    (b.uid, p["title"], t["expr"])
    for b in BOARDS
    for p in board_json(b)["panels"]
    for t in p.get("targets", [])
    if t.get("exemplar")
]


@needs_servers
@pytest.mark.parametrize(("uid", "title", "expr"), EXEMPLIFIED_PANELS)
def test_exemplars_of_a_panel_are_scraped_and_lead_to_a_page_that_is_there(
    running: Stage, uid: str, title: str, expr: str
) -> None:
    """By real content negotiation: Prometheus asks for OpenMetrics, and keeps what the agent adds to it."""
    until(lambda: running.prometheus.exemplars(filled(expr)))
    for series in running.prometheus.exemplars(filled(expr)):
        exemplar = series["exemplars"][-1]
        assert set(exemplar["labels"]) == {"workload"}
        assert float(exemplar["value"]) > 0
        with urllib.request.urlopen(
            f"{running.collector_url}/workloads/{exemplar['labels']['workload']}", timeout=20
        ) as page:
            assert series["seriesLabels"]["pod"] in page.read().decode()


def test_the_counters_of_the_catalogue_that_have_exemplars_are_on_panels() -> None:
    shown = " ".join(expr for _, _, expr in EXEMPLIFIED_PANELS)
    assert {name for name in EXEMPLIFIED if name in shown} == EXEMPLIFIED
