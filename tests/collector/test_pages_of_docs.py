from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from replaywatch.collector.tables import Base
from replaywatch.collector.tokens import SCOPES
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Dispatch, GraphMemory, Observation, ProbeCost, Timing, Window, Workload
from replaywatch.probe.snapshots import ENVIRONMENT

DOCS = Path(__file__).parents[2] / "docs"
WHOLE = (Workload, Fingerprint, EngineConfig, Dispatch, Timing, GraphMemory, ProbeCost, Observation)


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_the_privacy_page_lists_every_field_that_is_sent(kind: type) -> None:
    text = (DOCS / "privacy.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("|") and f"(`{kind.__name__}`)" in line]
    assert {f.name for f in fields(kind)} == {  # type: ignore[arg-type]
        word for word in row.split("|")[2].replace("`", "").replace(",", " ").split() if word.isidentifier()
    }


def test_the_privacy_page_has_a_row_for_every_part_of_a_window() -> None:
    text = (DOCS / "privacy.md").read_text()
    parts = {"workload", "dispatch", "timing", "traced", "memory", "cost", "blind", "observations", "device"}
    plain = {"start_ns", "end_ns", "origin", "fingerprint_id", "config_id"}
    assert {f.name for f in fields(Window)} == parts | plain
    for name in ("TracedWork", "DeviceState", "BlindSpot"):
        assert f"(`{name}`)" in text


def test_the_privacy_page_lists_every_variable_and_every_table() -> None:
    text = (DOCS / "privacy.md").read_text()
    for name in (*ENVIRONMENT, *Base.metadata.tables):
        assert f"`{name}`" in text, name


def test_the_security_page_names_every_scope_and_its_tests_exist() -> None:
    text = (DOCS / "security.md").read_text()
    assert all(f"| `{scope}` |" in text for scope in SCOPES)
    for name in ("test_batches.py", "test_access.py", "test_openapi.py", "test_quick_decode.py"):
        assert name in text
        assert (Path(__file__).parent / name).exists()
