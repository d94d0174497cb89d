"""Generated pages are fresh, and their generators refuse what would leave a hole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from docs.pages import DOCS, ROOT
from replaywatch.detectors.catalogue import DETECTORS

GENERATE = DOCS / "_generate"


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a generator's module."""
    monkeypatch.syspath_prepend(str(GENERATE))
    return import_module


def test_all_generated_pages_are_fresh() -> None:
    command = [sys.executable, str(GENERATE / "pages.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_detector_has_a_page_that_says_what_it_is_bad_at() -> None:
    for detector in DETECTORS:
        text = (DOCS / "detections" / f"{detector.name}.md").read_text()
        for part in ("## What it looks like", "## Evidence", "## What to do", "**Bad at:**"):
            assert part in text, f"{detector.name}: {part}"


def test_a_detector_without_notes_is_named(generator: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    shutil.copytree(GENERATE / "notes", notes)
    (notes / "overflow.md").unlink()
    with pytest.raises(ValueError, match=r"overflow\.md with the sections"):
        generator("detection_pages").pages(notes)


def test_notes_with_a_section_missing_are_named(generator: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    shutil.copytree(GENERATE / "notes", notes)
    file = notes / "overflow.md"
    file.write_text(file.read_text().replace("## False alarms", "## Anything else"))
    with pytest.raises(ValueError, match=r"overflow\.md needs"):
        generator("detection_pages").pages(notes)


def test_notes_of_a_detector_that_is_gone_are_named(generator: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    shutil.copytree(GENERATE / "notes", notes)
    shutil.copy(notes / "overflow.md", notes / "gone.md")
    with pytest.raises(ValueError, match=r"notes without a detector: gone\.md"):
        generator("detection_pages").pages(notes)


def test_thresholds_of_a_page_are_the_constants_of_the_module(generator: Any) -> None:
    from replaywatch.detectors import overflow

    described = generator("detection_pages").describe(overflow.Overflow())
    assert ("OVERFLOW_SHARE", str(overflow.OVERFLOW_SHARE), "") in described.thresholds


MEASURED = {
    "machine": {"gpu": "NVIDIA H200", "torch": "2.11.0"},
    "import_ms": 8.25,
    "import_mb": 1.5,
    "replay_hook_us": [0.81, 0.75, 0.9],
    "loops": [
        {"loop": "graph, batch 1", "what": "tier 0", "steps": 900, "pairs": 14, "step_ms": 2.5,
         "mean": [1.0004, 0.9996, 1.0012], "p99": [1.002, 0.99, 1.01], "mean_by_default": [1.0001, 1.0, 1.0002]},
    ],
    "others": [
        {"loop": "graph, batch 8", "what": "torch.profiler", "steps": 300, "pairs": 4, "step_ms": 2.6,
         "mean": [1.3, 1.2, 1.4], "p99": [1.5, 1.4, 1.6]},
        {"what": "cupti-python", "skipped": "not installed"},
    ],
    "published": [["StriaTrace", "time per output token", "+5.2 %"]],
}  # fmt: skip


def test_measurements_come_onto_the_page_as_they_were_printed(generator: Any) -> None:
    text = generator("overhead_page").measured(MEASURED)
    for figure in ("NVIDIA H200", "8.2 ms", "0.81 us", "+0.04 % (-0.04 to +0.12)", "+0.01 % (+0.00 to +0.02)"):
        assert figure in text
    assert "+30.00 % (+20.00 to +40.00)" in text
    assert "cupti-python (not installed)" in text
    assert "not measured here" in text


def test_without_measurements_the_page_says_so(generator: Any, tmp_path: Path) -> None:
    assert "No measurement is committed yet" in generator("overhead_page").page(tmp_path)
