"""push, diff and export, against a strict stand-in for Grafana's HTTP API."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dashboards.grafana_stand_in import TOKEN, GrafanaStandIn
from dashboards.programs import free_port
from replaywatch.contract.errors import ConfigurationError
from replaywatch.dashboards.board import board_json
from replaywatch.dashboards.boards import BOARDS
from replaywatch.dashboards.export import export
from replaywatch.dashboards.grafana import FOLDER_UID, Site, Source, diff, push
from replaywatch.dashboards.rule import RuleSettings

SOURCE = Source("http://prometheus.example:9090")


@pytest.fixture
def grafana() -> Iterator[GrafanaStandIn]:
    with GrafanaStandIn() as it:
        yield it


def site(grafana: GrafanaStandIn, token: str = TOKEN) -> Site:
    return Site(url=grafana.url, token=token)


def whats(grafana: GrafanaStandIn) -> Counter[str]:
    return Counter(change.what for change in push(site(grafana), SOURCE))


def test_a_push_makes_folder_source_and_dashboards_once(grafana: GrafanaStandIn) -> None:
    assert whats(grafana) == {"created": 2 + len(BOARDS)}
    assert set(grafana.boards) == {board.uid for board in BOARDS}
    assert {meta["folderUid"] for meta in grafana.meta.values()} == {FOLDER_UID}
    assert grafana.sources["prometheus"]["url"] == SOURCE.url
    done = len(grafana.calls)
    assert whats(grafana) == {"unchanged": 2 + len(BOARDS)}
    assert len(grafana.calls) == done
    assert {board["version"] for board in grafana.boards.values()} == {1}


def test_what_people_changed_is_shown_and_pushed_back(grafana: GrafanaStandIn) -> None:
    push(site(grafana), SOURCE)
    uid = BOARDS[0].uid
    grafana.boards[uid]["title"] = "Mine now"
    (changed,) = [d for d in diff(site(grafana)) if d.text]
    assert changed.uid == uid
    assert '-  "title": "Mine now",'.replace("  ", " ") in changed.text
    assert whats(grafana) == {"updated": 1, "unchanged": 1 + len(BOARDS)}
    assert grafana.boards[uid]["version"] == 2
    assert not [d for d in diff(site(grafana)) if d.text]


def test_a_dashboard_that_was_moved_comes_back_to_its_folder(grafana: GrafanaStandIn) -> None:
    push(site(grafana), SOURCE)
    grafana.meta[BOARDS[0].uid]["folderUid"] = ""
    assert whats(grafana)["updated"] == 1
    assert grafana.meta[BOARDS[0].uid]["folderUid"] == FOLDER_UID


def test_a_source_that_moved_is_updated_and_keeps_its_other_settings(grafana: GrafanaStandIn) -> None:
    push(site(grafana), SOURCE)
    grafana.sources["prometheus"]["jsonData"]["timeInterval"] = "15s"
    push(site(grafana), Source("http://elsewhere.example:9090"))
    assert grafana.sources["prometheus"]["url"] == "http://elsewhere.example:9090"
    assert grafana.sources["prometheus"]["jsonData"]["timeInterval"] == "15s"


def test_a_source_leads_from_exemplars_to_the_page_where_one_is_named(grafana: GrafanaStandIn) -> None:
    push(site(grafana), SOURCE)
    there = grafana.sources["prometheus"]["jsonData"]
    assert "exemplarTraceIdDestinations" not in there
    named = Source(SOURCE.url, "https://replaywatch.example/")
    assert Counter(c.what for c in push(site(grafana), named)) == {"updated": 1, "unchanged": 1 + len(BOARDS)}
    (link,) = grafana.sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert link["url"] == "https://replaywatch.example/workloads/${__value.raw}"
    assert Counter(c.what for c in push(site(grafana), named)) == {"unchanged": 2 + len(BOARDS)}
    # Who names none leaves the links of others alone.
    assert whats(grafana) == {"unchanged": 2 + len(BOARDS)}


def test_without_a_source_none_is_touched(grafana: GrafanaStandIn) -> None:
    push(site(grafana))
    assert grafana.sources == {}


def test_a_diff_changes_nothing_and_tells_what_is_missing(grafana: GrafanaStandIn) -> None:
    assert all(d.is_missing for d in diff(site(grafana)))
    assert grafana.calls == []


def test_a_provisioned_dashboard_is_left_to_its_files(grafana: GrafanaStandIn) -> None:
    push(site(grafana))
    grafana.meta[BOARDS[0].uid]["provisioned"] = True
    grafana.boards[BOARDS[0].uid]["title"] = "older"
    with pytest.raises(ConfigurationError, match="provisioned from files"):
        push(site(grafana))


def test_a_wrong_token_is_told_without_being_shown(grafana: GrafanaStandIn) -> None:
    with pytest.raises(ConfigurationError, match="service account") as refused:
        push(site(grafana, "glsa_wrong-secret"))
    assert "wrong-secret" not in str(refused.value) + repr(site(grafana, "glsa_wrong-secret"))


def test_what_grafana_says_is_passed_on(grafana: GrafanaStandIn) -> None:
    grafana.sources["x"] = {"name": "Prometheus", "uid": "x", "version": 1}
    with pytest.raises(ConfigurationError, match="same name already exists"):
        push(site(grafana), SOURCE)


def test_nobody_there_is_told() -> None:
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        push(Site(url=f"http://127.0.0.1:{free_port()}", token=TOKEN))


@pytest.mark.parametrize("url", ["grafana.example", "ftp://x", "http://", "http://user:secret@x"])
def test_addresses_that_cannot_work_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="address of Grafana") as refused:
        diff(Site(url=url))
    assert "secret" not in str(refused.value)


def test_an_export_has_all_files_and_follows_the_settings(tmp_path: Path) -> None:
    files = export(tmp_path / "out", RuleSettings(runbooks="https://wiki.example"))
    assert len(files) == len(BOARDS) + 3
    for board in BOARDS:
        assert json.loads((tmp_path / "out" / "grafana" / f"{board.uid}.json").read_text()) == board_json(board)
    rules = (tmp_path / "out" / "rules" / "replaywatch.rules.yml").read_text()
    assert "https://wiki.example/alerts.md#" in rules
    provider = yaml.safe_load((tmp_path / "out/provisioning/dashboards/replaywatch.yml").read_text())
    assert provider["providers"][0]["folderUid"] == FOLDER_UID
    text = (tmp_path / "out/provisioning/datasources/prometheus.yml").read_text()
    (link,) = yaml.safe_load(text)["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"]
    assert link["url"] == "http://127.0.0.1:8790/workloads/$${__value.raw}"
    assert export(tmp_path / "out") == files
    export(tmp_path / "out", page="https://page.example")
    assert (
        "https://page.example/workloads/$${" in (tmp_path / "out/provisioning/datasources/prometheus.yml").read_text()
    )


def test_an_export_into_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        export(tmp_path / "file")
