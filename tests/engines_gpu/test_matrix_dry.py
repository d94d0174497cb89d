"""The matrix script itself, on the stand-in vLLM: plugin, frames, judgement, blocks and table, without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STAND_IN = HERE.parent / "probe" / "engines" / "stand_ins" / "vllm_0_25"


@pytest.mark.slow
def test_matrix_tells_a_low_ceiling_and_compares_blocks(tmp_path):
    command = [
        sys.executable, str(HERE / "vllm_matrix.py"), "--out", str(tmp_path), "--site", str(STAND_IN),
        "--only", "ceiling32", "--serve", "--seconds", "2.5", "--tokens", "32", "--pairs", "2", "--budget-s", "120",
    ]  # fmt: skip
    # Its exit status also judges what the served engine said within 2.5 s, which a busy machine may miss.
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert "Traceback" not in done.stderr, done.stdout + done.stderr
    engine, served = json.loads((tmp_path / "summary.json").read_text())
    low, high = engine["told"]
    assert (low["reason"], high["reason"]) == (None, "above_ceiling")
    assert high["verdict"] == "finding"
    assert any("--cudagraph-capture-sizes" in (remedy or "") for *_, remedy in high["findings"])
    assert all(c["same_tokens"] for c in engine["compared"])
    assert engine["probe_errors"] == 0
    assert "failed" not in engine
    assert "failed" not in served
    assert served["server_pid"] not in served["pids"]
