"""Every command answers, and says in one sentence what it cannot do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from replaywatch.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


def replaywatch(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = ":".join(str(ROOT / part) for part in ("agent", "detectors", "collector"))
    return subprocess.run(
        [sys.executable, "-m", "replaywatch.cli.main", *map(str, arguments)],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", [name for name, _, _ in COMMANDS])
def test_every_command_explains_itself(command: str) -> None:
    done = replaywatch(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: replaywatch " + command)


def test_no_command_and_an_unknown_one_are_usage_errors() -> None:
    assert replaywatch().returncode == 2
    assert "invalid choice" in replaywatch("nonsense").stderr


def test_a_token_is_shown_once_listed_without_its_secret_and_revoked(tmp_path: Path) -> None:
    store = ("store", "--store", f"sqlite:///{tmp_path}/a.db")
    text = replaywatch(*store, "token-create", "node-1", "--scope", "ingest").stdout.strip()
    assert text.startswith("rw_")
    listed = replaywatch(*store, "token-list").stdout
    assert "node-1" in listed
    assert text.split("_")[2] not in listed
    assert replaywatch(*store, "token-revoke", "node-1").returncode == 0
    assert "revoked" in replaywatch(*store, "token-list").stdout


def test_a_store_moves_into_a_file_and_back(tmp_path: Path) -> None:
    first, second = (("store", "--store", f"sqlite:///{tmp_path}/{name}.db") for name in "ab")
    replaywatch(*first, "token-create", "node-1", "--scope", "ingest")
    assert replaywatch(*first, "export", tmp_path / "moved").returncode == 0
    assert replaywatch(*second, "import", tmp_path / "moved").returncode == 0
    assert "node-1" in replaywatch(*second, "token-list").stdout


def test_an_option_that_cannot_work_is_one_sentence() -> None:
    done = replaywatch("collector", "--port", "99999999")
    assert done.returncode == 2
    assert done.stderr.startswith("replaywatch: --port cannot be")
    assert "Traceback" not in done.stderr


def test_nobody_to_tell_is_said() -> None:
    done = replaywatch("notify", "test")
    assert (done.returncode, "no destination is set" in done.stdout) == (2, True)


def test_dashboards_and_rules_are_written(tmp_path: Path) -> None:
    assert replaywatch("dashboards", "export", tmp_path).returncode == 0
    assert (tmp_path / "rules" / "replaywatch.rules.yml").exists()
    assert len(list((tmp_path / "grafana").glob("*.json"))) >= 4


def test_a_grafana_that_is_not_there_is_one_sentence() -> None:
    done = replaywatch("dashboards", "push", "http://127.0.0.1:9", GRAFANA_TOKEN="x")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_command_that_is_not_there_is_one_sentence() -> None:
    done = replaywatch("run", "--", "no-such-command")
    assert done.returncode == 2
    assert "was not found on PATH" in done.stderr


def test_doctor_sees_what_a_process_under_the_probe_says() -> None:
    done = replaywatch("doctor", "--seconds", "20", "--", sys.executable, "-c", "pass")
    assert "on this host" in done.stdout
    assert done.returncode == 2
    assert "nothing was heard" in done.stdout
