"""The report in its three forms, and the exit status that a CI job acts on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "data" / "corpus"
FAULT = CORPUS / "decoder-eager-h2048-l8-b1-k512.cpu_cuda.json.gz"
HEALTHY = CORPUS / "decoder-replay-h2048-l22-b4-k512.cpu_cuda.json.gz"
Analyze = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def analyze() -> Analyze:
    """`replaywatch analyze` in a process of its own."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "replaywatch.cli.main", "analyze", *map(str, arguments)]
        path = ":".join(str(ROOT / part) for part in ("agent", "detectors", "collector"))
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": path, "COLUMNS": "100"}
        )

    return run


def _json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_fault_gives_one_and_a_healthy_trace_nought(analyze: Analyze) -> None:
    assert analyze(FAULT).returncode == 1
    assert analyze(HEALTHY).returncode == 0
    assert analyze(FAULT, HEALTHY).returncode == 1


def test_fail_on_decides_what_fails(analyze: Analyze) -> None:
    assert analyze(FAULT, "--fail-on", "none").returncode == 0
    assert analyze(FAULT, "--fail-on", "page").returncode == 1


def test_the_verdict_comes_first_then_cost_cause_and_change(analyze: Analyze) -> None:
    lines = analyze(FAULT).stdout.splitlines()
    assert lines[0].startswith(" PAGE ")
    order = [next(i for i, line in enumerate(lines) if line.strip().startswith(word))
             for word in ("cost", "cause", "change", "seen")]  # fmt: skip
    assert order == sorted(order)


def test_json_carries_every_promised_field(analyze: Analyze) -> None:
    report = _json(analyze("--json", FAULT))
    assert report["schema_version"] == 1
    result = report["results"][0]
    promised = ("source", "workload", "verdict", "severity", "recoverable_ratio", "step_us", "kernel_coverage",
                "gpu_busy_ratio", "findings", "blind")  # fmt: skip
    assert all(field in result for field in promised)
    assert (result["verdict"], result["severity"]) == ("finding", "page")
    ratio = result["recoverable_ratio"]
    assert 0 <= ratio["low"] <= ratio["estimate"] <= ratio["high"] <= 1
    finding = result["findings"][0]
    assert all(field in finding for field in ("detector", "severity", "cause", "remedy", "evidence"))
    assert all({"name", "value", "unit", "source"} == set(e) for e in finding["evidence"])


def test_every_field_of_the_json_is_documented(analyze: Analyze) -> None:
    text = (ROOT / "docs" / "analyze-json.md").read_text()
    result = _json(analyze("--json", FAULT))["results"][0]
    for field in (*result, *result["traced"], *result["findings"][0]):
        assert f"`{field}`" in text, field


def test_the_page_needs_nothing_from_elsewhere(analyze: Analyze, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    analyze(FAULT, "--html", page)
    text = page.read_text()
    assert "<svg" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert "<script" not in text


def test_names_from_a_trace_cannot_write_into_the_page(analyze: Analyze, tmp_path: Path) -> None:
    hostile = tmp_path / "<img src=x onerror=alert(1)>.json"
    hostile.write_text('{"traceEvents": []}')
    page = tmp_path / "report.html"
    analyze(hostile, "--html", page)
    assert "<img" not in page.read_text()


BROKEN: dict[str, bytes] = {
    "empty.json": b"",
    "foreign.json": b'{"hello": "world"}',
    "list.json": b"[1, 2, 3]",
    "cut.json.gz": FAULT.read_bytes()[:5000],
    "binary.bin": bytes(range(256)) * 64,
    "text.log": b"nothing of interest\n" * 20,
    "half.json": b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "du',
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_judged_gives_one_sentence_and_two(name: str, analyze: Analyze, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    done = analyze("--json", path)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    report = _json(done)
    said = [e["message"] for e in report["errors"]] or [b["reason"] for r in report["results"] for b in r["blind"]]
    assert said
    assert all(r["verdict"] == "blind" for r in report["results"])


def test_a_folder_and_an_absent_file_are_named(analyze: Analyze, tmp_path: Path) -> None:
    done = analyze("--json", tmp_path, tmp_path / "absent.json")
    assert done.returncode == 2
    assert len(_json(done)["errors"]) == 2


def test_a_trace_without_device_events_is_blind_and_says_what_to_do(analyze: Analyze, tmp_path: Path) -> None:
    trace = tmp_path / "cpu.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    done = analyze("--json", trace)
    result = _json(done)["results"][0]
    assert (result["verdict"], done.returncode) == ("blind", 2)
    assert any("CUDA" in b["reason"] for b in result["blind"])
