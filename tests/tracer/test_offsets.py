"""Our own declarations of CUPTI against NVIDIA's headers, which `make test` fetches where there is a network.

Where REPLAYWATCH_CUPTI_HEADERS names their folder, as in .ci/run, they must be there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tracer.builds import ROOT
from tracer.fetch_headers import RELEASES, fetch

_NAMED = "REPLAYWATCH_CUPTI_HEADERS"
_COMPILER = os.environ.get("CXX", "c++")
_SHIM = {"builtin_types.h": "#pragma once\n", "cuda_stdint.h": "#pragma once\n#include <stdint.h>\n"}


def _compile(headers: Path, source: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    for name, text in _SHIM.items():  # of the compiler's package, and of no matter for layouts
        (tmp_path / name).write_text(text)
    own = ROOT / "agent/cupti-tracer"
    command = [_COMPILER, "-std=c++17", "-fsyntax-only", f"-I{own}/src", f"-isystem{headers}", f"-isystem{tmp_path}"]
    return subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)


def _headers(release: str) -> Path:
    if shutil.which(_COMPILER) is None:
        pytest.skip("no C++ compiler here; the offsets are checked with one")
    folder = Path(os.environ.get(_NAMED) or ROOT / "build/cupti-headers")
    if not (folder / release / "cupti_activity.h").exists():
        give_up = pytest.fail if _NAMED in os.environ else pytest.skip
        give_up(f"no headers of CUPTI {release}; python tests/tracer/fetch_headers.py {folder} fetches them")
    return folder / release


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


def test_headers_that_were_promised_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_NAMED, str(tmp_path))
    monkeypatch.setattr(sys.modules[__name__], "_COMPILER", sys.executable)  # any program that is there
    with pytest.raises(pytest.fail.Exception, match=r"no headers of CUPTI 13\.0"):
        _headers("13.0")


@pytest.mark.parametrize("there", [(), ("cuda.h",), ("cupti_activity.h", "cupti_version.h")])
def test_headers_in_part_are_fetched_again(
    there: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "13.0").mkdir()
    for name in there:
        (tmp_path / "13.0" / name).touch()
    calls = []

    def download(command: list[str], check: bool) -> None:
        calls.append(command)
        for header in ("cupti_activity.h", "cuda.h"):
            place = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(place / f"{header}.whl", "w") as wheel:
                wheel.writestr(f"nvidia/include/{header}", "whole")

    monkeypatch.setattr(subprocess, "run", download)
    for _ in range(2):
        fetch("13.0", tmp_path)
        assert {f.name: f.read_text() for f in (tmp_path / "13.0").iterdir()} == {
            "cupti_activity.h": "whole",
            "cuda.h": "whole",
        }
    assert len(calls) == 1


def _make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Make without a package index, in an environment that is taken as set up."""
    if shutil.which("make") is None:
        pytest.skip("no make here")
    command = ["make", "-o", ".venv/.installed-dev", f"BIN={Path(sys.executable).parent}", *arguments]
    environment = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)


def test_without_a_network_make_goes_on_and_says_so(tmp_path: Path) -> None:
    done = _make(f"HEADERS={tmp_path}", f"{tmp_path}/.fetched")
    assert "headers of CUPTI 12.4 could not be fetched" in done.stderr
    assert "are skipped" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_make_test_fetches_the_headers_first() -> None:
    told = _make("-n", "-W", "tests/tracer/fetch_headers.py", "test").stdout
    assert told.index("fetch_headers.py build/cupti-headers") < told.index("-m pytest")
