"""The demo plays recordings of a real GPU through the real socket, HTTP path, store and detectors."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from replaywatch.contract.errors import UnreadableSource
from replaywatch.demo.scenario import load_scenarios, read_scenario

ROOT = Path(__file__).parents[2]


def _demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = ":".join(str(ROOT / part) for part in ("agent", "detectors", "collector"))
    command = [sys.executable, "-m", "replaywatch.cli.main", "demo", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=90, check=False, env={"PYTHONPATH": path, "COLUMNS": "100"}
    )


def test_once_shows_a_healthy_workload_one_without_graphs_and_one_past_its_ceiling() -> None:
    done = _demo("--once")
    assert done.returncode == 0, done.stderr
    assert "HEALTHY   chat-default-0" in done.stdout
    assert "No CUDA graph is used" in done.stdout
    assert "past the largest captured size 32" in done.stdout
    assert done.stdout.count("PAGE") == 2
    assert "page      http://127.0.0.1:" in done.stdout
    assert "Traceback" not in done.stderr


def test_every_recording_says_where_it_comes_from() -> None:
    scenarios = load_scenarios()
    assert len(scenarios) == 3
    for scenario in scenarios:
        assert scenario.origin["gpu"] == "NVIDIA H200"
        assert {"driver", "engine", "recorded"} <= set(scenario.origin)
        assert scenario.length_ns > 15e9


@pytest.mark.parametrize("data", [b"", b"x", gzip.compress(b""), gzip.compress(b"{}\n"), gzip.compress(b"[]\n{}")])
def test_a_damaged_recording_is_named(data: bytes) -> None:
    with pytest.raises(UnreadableSource, match="is damaged"):
        read_scenario("a.jsonl.gz", data)
