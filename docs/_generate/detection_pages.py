"""One page per detector, and the page that lists them.

What a detector means and is bad at comes from its docstrings, its thresholds from its module's constants, everything
that a person has to know beside that from `notes/<name>.md`.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from replaywatch.detectors.catalogue import DETECTORS

SECTIONS: Final = ("What it looks like", "Evidence", "What to do", "False alarms")
KINDS: Final = {
    "stable": "Stable: found from the start, without history.",
    "sudden": "Sudden: found against what the same workload did before.",
    "peers": "Peers: found against replicas with the same fingerprint.",
}
INTRODUCTION: Final = """\
# Detections

One page for each detector: what it means, the evidence it needs, what to do, and what it takes wrongly for a fault.
Made from the detectors themselves by `python docs/_generate/pages.py`.

**Severity** of what costs time comes from the low end of the recoverable share of the step time: info from 5 %, warn
from 10 %, page from 15 %. Published gains of graphs on server GPUs are 16 % and more; on an L4 one study saw 2.7 %,
which stays silent here. That graphs are off is no alarm by itself.

**Information** (`is_fault` is false) is shown and never makes a workload unhealthy. A workload is *healthy* only when
something decisive was seen; *blind* says what would give sight, *warming up* what is still missing. Neither is healthy.

**Votes.** Three independent witnesses say what they think of a finding: intent (was it configured so?), peers (do
replicas with the same fingerprint do the same?), and the counterfactual (what would the step take as one graph?).

"""


@dataclass(frozen=True, slots=True)
class Described:
    """What a page is made of. `thresholds`: name, value, the comment above."""

    name: str
    summary: str
    meaning: str
    bad_at: str
    thresholds: tuple[tuple[str, str, str], ...]


def describe(detector: Any) -> Described:
    """A detector from its source. Raises: ValueError where it does not say what it is bad at."""
    kind = type(detector)
    text = inspect.cleandoc(kind.__doc__ or "")
    meaning, _, bad_at = text.partition("Bad at:")
    if not meaning.strip() or not bad_at.strip():
        raise ValueError(f"the docstring of {kind.__qualname__} must say what it finds, and after 'Bad at:' what not")
    return Described(
        name=detector.name,
        summary=_joined(meaning.strip().split("\n\n")[0]),
        meaning="\n\n".join(_joined(part) for part in meaning.strip().split("\n\n")),
        bad_at=_joined(bad_at),
        thresholds=_thresholds(Path(inspect.getfile(kind))),
    )


def _joined(text: str) -> str:
    return " ".join(text.split())


def _thresholds(file: Path) -> tuple[tuple[str, str, str], ...]:
    """Public numeric constants of a module with the comment right above each."""
    source = file.read_text()
    lines = source.splitlines()
    found = []
    for node in ast.parse(source).body:
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not re.fullmatch(r"[A-Z][A-Z0-9_]+", target.id) or value is None:
            continue
        if all(
            isinstance(n, (ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop)) for n in ast.walk(value)
        ):
            found.append((target.id, ast.unparse(value), _comment_above(lines, node.lineno - 1)))
    return tuple(f for f in found if not f[1].startswith(("'", '"')))


def _comment_above(lines: list[str], index: int) -> str:
    above: list[str] = []
    while index > 0 and lines[index - 1].startswith("#"):
        index -= 1
        above.insert(0, lines[index].lstrip("# "))
    return " ".join(above)


@dataclass(frozen=True, slots=True)
class Notes:
    """What a person wrote about a detector. Shape: sections by title, in the order of SECTIONS."""

    kind: str
    title: str
    sections: dict[str, str]


def read_notes(file: Path) -> Notes:
    """The notes of a detector. Raises: ValueError, saying what is missing."""
    if not file.is_file():
        raise ValueError(f"a detector has no notes: write {file} with the sections {', '.join(SECTIONS)}")
    head, *parts = re.split(r"(?m)^## (.+)\n", file.read_text())
    fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    sections = {title.strip(): text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}
    if tuple(sections) != SECTIONS or fields.get("kind") not in KINDS or "title" not in fields:
        raise ValueError(f"{file} needs 'title: ...', 'kind: {'|'.join(KINDS)}' and the sections {', '.join(SECTIONS)}")
    return Notes(fields["kind"], fields["title"], sections)


def page(described: Described, notes: Notes) -> str:
    """The page of a detector."""
    parts = [f"# {notes.title}", f"`{described.name}`. {KINDS[notes.kind]}", described.meaning]
    for title in SECTIONS:
        body = notes.sections[title]
        if title == "False alarms":
            body = f"**Bad at:** {described.bad_at}\n\n{body}"
        parts.append(f"## {title}\n\n{body}")
    if described.thresholds:
        rows = [f"| `{name}` | {value} | {comment} |" for name, value, comment in described.thresholds]
        parts.append("\n".join(["## Thresholds\n", "| name | value | why |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def pages(notes_folder: Path) -> dict[str, str]:
    """All pages by path below docs. Raises: ValueError."""
    found, rows, known = {}, [], set()
    for detector in DETECTORS:
        described = describe(detector)
        notes = read_notes(notes_folder / f"{described.name}.md")
        found[f"detections/{described.name}.md"] = page(described, notes)
        rows.append(
            f"| [{described.name}](detections/{described.name}.md) | {notes.kind} | {described.summary} "
            f"| {described.bad_at} |"
        )
        known.add(described.name)
    if spare := sorted(f.name for f in notes_folder.glob("*.md") if f.stem not in known):
        raise ValueError(f"notes without a detector: {', '.join(spare)}")
    table = ["| detector | kind | fires when | is bad at |", "|---|---|---|---|", *rows]
    return {"detections.md": INTRODUCTION + "\n".join(table) + "\n"} | found
