"""Our own declarations of CUPTI against NVIDIA's headers; `fetch_headers.py` fetches them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tracer.builds import ROOT
from tracer.fetch_headers import RELEASES

_FOLDER = Path(os.environ.get("REPLAYWATCH_CUPTI_HEADERS") or ROOT / "build/cupti-headers")
_SHIM = {"builtin_types.h": "#pragma once\n", "cuda_stdint.h": "#pragma once\n#include <stdint.h>\n"}


def _compile(headers: Path, source: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    for name, text in _SHIM.items():  # of the compiler's package, and of no matter for layouts
        (tmp_path / name).write_text(text)
    own = ROOT / "agent/cupti-tracer"
    command = ["c++", "-std=c++17", "-fsyntax-only", f"-I{own}/src", f"-isystem{headers}", f"-isystem{tmp_path}"]
    return subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)


def _headers(release: str) -> Path:
    headers = _FOLDER / release
    if not (headers / "cupti_activity.h").exists():
        pytest.skip(f"no headers of CUPTI {release} here; python tests/tracer/fetch_headers.py {_FOLDER} fetches them")
    return headers


@pytest.mark.parametrize("release", RELEASES)
def test_offsets_and_values_are_those_of_the_headers(release: str, tmp_path: Path) -> None:
    done = _compile(_headers(release), ROOT / "tests/tracer/native/offsets.cpp", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_moved_field_is_noticed(tmp_path: Path) -> None:
    text = (ROOT / "tests/tracer/native/offsets.cpp").read_text()
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text(
        text.replace("SAME(kernel_record::kEnd, Kernel, end,", "SAME(kernel_record::kEnd, Kernel, completed,")
    )
    done = _compile(_headers("13.0"), wrong, tmp_path)
    assert "has moved" in done.stderr
