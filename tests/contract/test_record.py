"""A record is equal and hashed by value, and the type checker lets nobody change it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

from replaywatch.contract.record import record

ROOT = Path(__file__).parents[2]


@record(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@record(frozen=True, slots=True, kw_only=True)
class Named:
    name: str


def test_records_are_values_with_slots() -> None:
    assert Point(1) == Point(1, 0) != Point(2)
    assert len({Point(1), Point(1), Point(2)}) == 2
    assert is_dataclass(Point)
    assert [f.name for f in fields(Named(name="a"))] == ["name"]
    assert not hasattr(Point(1), "__dict__")


def test_the_type_checker_refuses_to_change_a_record(tmp_path: Path) -> None:
    snippet = tmp_path / "changes.py"
    snippet.write_text(
        "from replaywatch.contract.record import record\n\n\n"
        "@record(frozen=True, slots=True, kw_only=True)\nclass Named:\n    name: str\n\n\n"
        'named = Named(name="a")\n'
        'named.name = "b"\n'
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(snippet)]
    told = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(ROOT / "agent")}, capture_output=True, text=True, check=False
    )
    assert "read-only" in told.stdout, told.stdout + told.stderr
    assert "Found 1 error" in told.stdout
