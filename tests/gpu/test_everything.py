"""The order in which the measurements on GPUs run, with steps that need none."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest

from gpu.everything import Pass, Step


def _step(name: str, code: str, seconds: float = 20.0, **more: object) -> Step:
    return Step(name, (sys.executable, "-c", code), seconds, **more)  # type: ignore[arg-type]


def _told(steps: list[Step], out: Path, budget_s: float = 100.0) -> dict[str, dict[str, object]]:
    whole = Pass(steps, out, time.monotonic() + budget_s, {"server": None, "vllm": str(out)})
    while (step := whole.take(is_alone=True)) is not None:
        whole.run(step, 0)
    lanes = [threading.Thread(target=whole.lane, args=(device,)) for device in (0, 1)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert json.loads((out / "summary.json").read_text()) == whole.told
    return {str(told["step"]): told for told in whole.told}


def test_what_must_be_alone_goes_first_and_a_failure_is_told(tmp_path: Path) -> None:
    written = f"open({str(tmp_path / 'alone')!r}, 'w').close()"
    there = f"import os, sys; sys.exit(3 * (not os.path.exists({str(tmp_path / 'alone')!r})))"
    told = _told([_step("other", there), _step("bad", "raise SystemExit(5)"), _step("alone", written, is_alone=True)],
                 tmp_path)  # fmt: skip
    assert next(iter(told)) == "alone"
    assert {name: how["code"] for name, how in told.items()} == {"alone": 0, "other": 0, "bad": 5}


def test_what_the_budget_or_the_machine_lacks_is_left_out_and_told(tmp_path: Path) -> None:
    told = _told([_step("long", "", 200.0), _step("demo", "", needs="server"), _step("short", "")], tmp_path)
    assert told["short"]["code"] == 0
    assert "budget" in str(told["long"]["skipped"])
    assert told["demo"]["skipped"] == "--server was not given"


def test_a_step_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    told = _told([_step("stuck", "import time; time.sleep(60)", 0.5), _step("next", "")], tmp_path)
    assert (told["stuck"]["code"], told["next"]["code"]) == ("too long", 0)


@pytest.mark.parametrize(("needs", "expected"), [("", "1"), ("vllm", "0")])
def test_engines_get_a_path_of_their_own(needs: str, expected: str, tmp_path: Path) -> None:
    code = "import os; print(int('agent' in os.environ['PYTHONPATH'].split(os.pathsep)[0]), end='')"
    _told([_step("path", code, needs=needs)], tmp_path)
    assert (tmp_path / "path.log").read_text() == expected
