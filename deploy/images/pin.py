"""Writes constraints.txt, the versions that the images are built with: those installed here.

    python deploy/images/pin.py

The names come from what the extras in pyproject.toml ask for, and what that asks for in turn where it is installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT: Final = Path(__file__).resolve().parents[2] / "pyproject.toml"
CONSTRAINTS: Final = Path(__file__).with_name("constraints.txt")
EXTRAS: Final = ("agent", "server", "postgres", "bus")
HEAD: Final = "# The versions that the images are built with; `python deploy/images/pin.py` writes this file.\n"


def extras_of_project() -> dict[str, list[Requirement]]:
    """What each extra of the project asks for itself; extras of the project among them are followed."""
    project: dict[str, Any] = tomllib.loads(PROJECT.read_text())["project"]
    return {
        extra: [Requirement(text) for text in texts] for extra, texts in project["optional-dependencies"].items()
    } | {"": [Requirement(text) for text in project["dependencies"]]}


def requirements_of(name: str, extras: tuple[str, ...]) -> list[Requirement]:
    """What a distribution asks for here, with these extras."""
    if canonicalize_name(name) == "replaywatch":
        asked = extras_of_project()
        wanted = [r for extra in ("", *extras) for r in asked[extra]]
    else:
        wanted = [Requirement(text) for text in distribution(name).requires or []]
    contexts = [{"extra": extra} for extra in extras] or [{"extra": ""}]
    return [r for r in wanted if r.marker is None or any(r.marker.evaluate(c) for c in contexts)]


def closure(name: str, extras: tuple[str, ...]) -> dict[str, list[Requirement]]:
    """Everything that a distribution needs, by canonical name, each with those who ask for it."""
    found: dict[str, list[Requirement]] = {}
    todo, done = [(name, extras)], set()
    while todo:
        here = todo.pop()
        if here in done:
            continue
        done.add(here)
        for requirement in requirements_of(*here):
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
            todo.append((requirement.name, tuple(sorted(requirement.extras))))
    found.pop(canonicalize_name(name), None)
    return found


def main() -> None:
    """Write the file."""
    names = sorted(closure("replaywatch", EXTRAS))
    CONSTRAINTS.write_text(HEAD + "".join(f"{name}=={distribution(name).version}\n" for name in names))


if __name__ == "__main__":
    main()
