"""What is built once for the tests of the images."""

from __future__ import annotations

import fnmatch
import os
import shutil
import sys
from pathlib import Path

import pytest

from deploy.programs import DEPLOY, ROOT, output_of

NATIVE_OFF = {"REPLAYWATCH_NATIVE": "0"}


def allowed(path: str, rules: list[str]) -> bool:
    """Whether a file is in the build context; the last rule that names it or a folder above it decides."""
    parts = path.split("/")
    above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    inside = True
    for rule in rules:
        pattern = rule.lstrip("!")
        names = [p.rsplit("/", 1)[-1] for p in above] if pattern.startswith("**/") else above
        if any(fnmatch.fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            inside = rule.startswith("!")
    return inside


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of exactly what a build of the images is given."""
    folder = tmp_path_factory.mktemp("context")
    lines = (DEPLOY / "images" / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    listed = output_of(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT).splitlines()
    for name in listed:
        if allowed(name, rules) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run_step(context: Path, name: str, *arguments: Path | str, **extra: str) -> str:
    """Run one of the scripts that the Dockerfile runs, with this interpreter."""
    environment = os.environ | {"PYTHON": sys.executable} | extra
    command = ["sh", str(DEPLOY / "images" / name), *map(str, arguments)]
    return output_of(command, cwd=context, env=environment)


@pytest.fixture(scope="session")
def wheels(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree, without the native part, for speed."""
    folder = tmp_path_factory.mktemp("wheels")
    run_step(context, "build-wheel.sh", folder, **NATIVE_OFF)
    return folder


@pytest.fixture(scope="session")
def probe(context: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the probe image holds in /probe."""
    folder = tmp_path_factory.mktemp("image") / "probe"
    run_step(context, "lay-out-probe.sh", wheels, folder)
    return folder
