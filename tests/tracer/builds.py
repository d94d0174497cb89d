"""The tracer and its fakes, built once and kept under build/tracer-tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SANITIZERS = {"plain": "", "asan": "address,undefined", "tsan": "thread"}


def find_tool(name: str) -> str | None:
    """A program on the path or beside the interpreter."""
    beside = ROOT / ".venv" / "bin" / name
    return shutil.which(name) or (str(beside) if beside.exists() else None)


def build(variant: str) -> Path:
    """The folder of a built variant; skips the test where there is no compiler or no sanitizer."""
    cmake, ninja = find_tool("cmake"), find_tool("ninja")
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if not cmake or not compiler:
        pytest.skip("no C++ compiler and cmake here; the native tracer's tests need both")
    folder = ROOT / "build" / "tracer-tests" / variant
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    configure = [cmake, "-S", str(ROOT / "agent/cupti-tracer"), "-B", str(folder), *generator]
    configure += ["-DREPLAYWATCH_TRACER_TESTS=ON", f"-DREPLAYWATCH_SANITIZE={SANITIZERS[variant]}"]
    for command in (configure, [cmake, "--build", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            if variant != "plain" and "cannot find -l" in done.stderr + done.stdout:
                pytest.skip(f"this compiler has no runtime for {SANITIZERS[variant]}")
            raise RuntimeError(f"the {variant} build failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return folder
