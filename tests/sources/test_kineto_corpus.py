"""Recordings whose steps are known by construction: the readers must find as many steps with as many kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replaywatch.sources.reader import read

FOLDER = Path(__file__).parents[1] / "data" / "corpus"
MANIFEST = FOLDER / "manifest.jsonl"


def recorded(annotated: bool) -> list[Any]:
    if not MANIFEST.exists():
        return []
    items = [json.loads(line) for line in MANIFEST.read_text().splitlines()]
    traces = [t for item in items if "error" not in item for t in item.get("traces", ()) if "file" in t]
    wanted = [t for t in traces if bool(t.get("annotated")) == annotated and (FOLDER / t["file"]).exists()]
    return [
        pytest.param(t, id=t["file"].removesuffix(".json.gz")) for t in wanted if t["mode"] != "cuda" or not annotated
    ]


@pytest.mark.parametrize("trace", recorded(annotated=True) or [pytest.param(None, marks=pytest.mark.skip("no corpus"))])
def test_annotated_steps_are_found_with_their_kernels(trace: dict[str, Any]) -> None:
    windows = [w for w in read(FOLDER / trace["file"]).windows if w.traced]
    assert sum(w.steps or 0 for w in windows) == trace["steps"]
    assert sum(w.traced.total_kernels for w in windows if w.traced) == pytest.approx(
        trace["kernels_per_step"] * trace["steps"], rel=0.02
    )


@pytest.mark.parametrize(
    "trace", recorded(annotated=False) or [pytest.param(None, marks=pytest.mark.skip("no corpus"))]
)
def test_bare_steps_have_the_kernels_and_the_length_of_a_step(trace: dict[str, Any]) -> None:
    """Kernels a microsecond must be right even where the pattern makes one step of several or the other way round."""
    (work,) = [w.traced for w in read(FOLDER / trace["file"]).windows if w.traced]
    assert work.steps > 0
    ours = work.kernels / work.span_ns * 1000
    assert ours == pytest.approx(trace["kernels_per_step"] / trace["traced_us"], rel=0.6)
