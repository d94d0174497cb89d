"""Where the tests find the repository and the programs that they check deployments with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def program(name: str, package: str) -> str:
    """The path of a program, on PATH or beside the interpreter; skips the test, saying what to install, without it."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    if found is None:
        pytest.skip(f"{name} is not installed (package {package})")
    return found


def output_of(command: list[str], **options: object) -> str:
    """What a command prints; the test fails with all of it where the command does."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return str(done.stdout)
