"""What the pages name exists: commands and their options, variables, files, detectors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.pages import DOCS, ROOT, of_replaywatch, pages
from replaywatch.admission.options import OPTIONS as ADMISSION_OPTIONS
from replaywatch.agent.options import OPTIONS as AGENT_OPTIONS
from replaywatch.cli.main import build_parser
from replaywatch.collector.options import OPTIONS as COLLECTOR_OPTIONS
from replaywatch.probe.settings import option_rows

# Variables that are read outside the tables of options.
OTHERS = {
    "REPLAYWATCH_PROBE",
    "REPLAYWATCH_NATIVE",
    "REPLAYWATCH_TOKEN",
    "REPLAYWATCH_WEBHOOK_URL",
    "REPLAYWATCH_ENGINE_SOURCES",
}
VARIABLES = {
    *(o.variable("agent") for o in AGENT_OPTIONS),
    *(o.variable("collector") for o in COLLECTOR_OPTIONS),
    *(o.variable("admission") for o in ADMISSION_OPTIONS),
    *(o.variable("probe") for o in option_rows()),
}
NATIVE = {  # read by the injected tracer
    name
    for source in (ROOT / "agent/cupti-tracer/src").glob("*.cpp")
    for name in re.findall(r'"(REPLAYWATCH_[A-Z0-9_]+)"', source.read_text())
}
MINE = [p for p in pages() if p.parent.name in ("how-to", "deploy", "detections")] + [
    DOCS / name
    for name in ("index.md", "tutorial.md", "troubleshooting.md", "overhead.md", "comparison.md", "detections.md")
]


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_replaywatch_command_is_one_that_the_program_takes(page: Path) -> None:
    for words in of_replaywatch(page.read_text()):
        command = next((word for word in words if not word.startswith("-")), None)
        try:
            build_parser(command).parse_args(words)
        except SystemExit as end:
            assert end.code == 0, f"{page.name}: replaywatch {' '.join(words)}"


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_variable_that_a_page_names_is_read(page: Path) -> None:
    named = set(re.findall(r"\bREPLAYWATCH_[A-Z_]+[A-Z]\b", page.read_text()))
    assert named <= VARIABLES | OTHERS | NATIVE


@pytest.mark.parametrize("page", MINE, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_file_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    text = re.sub(r"\]\([^)]*\)", "]", page.read_text())  # MkDocs follows links itself
    named = set(re.findall(r"\b(?:deploy|dashboards|tests|docs)/[\w./-]*\w", text))
    to_come = {"docs/data/bench_probe.json"}
    for path in named - to_come:
        assert (ROOT / path).exists() or "*" in path, f"{page.name}: {path}"
