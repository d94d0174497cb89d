"""Threads, forks, ends, thieves and dead agents, under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tracer.builds import build

SOUND = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "die_after_fork=0:halt_on_error=1",
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["asan", "tsan"])
@pytest.mark.parametrize("drill", ["crowd", "stolen", "robbed", "fork", "exit", "flood", "closed", "agent"])
def test_drill_is_sound(variant: str, drill: str, tmp_path: Path) -> None:
    _run(variant, drill, tmp_path)


@pytest.mark.parametrize("drill", ["crowd", "stolen", "robbed", "fork", "exit", "flood", "closed"])
def test_drill_passes(drill: str, tmp_path: Path) -> None:
    _run("plain", drill, tmp_path)


def _run(variant: str, drill: str, tmp_path: Path) -> str:
    command = [str(build(variant) / "drill"), drill, *([str(tmp_path / "agent.sock")] if drill == "agent" else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=SOUND)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
