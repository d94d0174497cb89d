"""What of the measurements on GPUs runs without one: their commands start, and their sums are right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SCRIPTS = sorted(
    path.relative_to(HERE.parent)
    for path in (*HERE.glob("*.py"), *(HERE.parent / "engines_gpu").glob("vllm_matrix.py"))
    if "ArgumentParser" in path.read_text() and path.name != Path(__file__).name
)
sys.path[:0] = [str(HERE)]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_script_says_what_it_does(script: Path) -> None:
    done = subprocess.run([sys.executable, str(HERE.parent / script), "--help"], capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--json" in done.stdout or "--out" in done.stdout


class Told:
    """A side that answers what it was given, one answer after another; the first is thrown away."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = [{"silent": "warm-up"}, *answers]

    def measure(self, name: str) -> dict[str, Any]:
        """The next answer."""
        assert name == "a loop"
        return self._answers.pop(0)


def _stretch(told: float, stamps: float, bare: float) -> dict[str, Any]:
    return {"told": {"busy": told}, "stamps": {"busy": stamps}, "bare": {"busy": bare}}


def test_tracers_are_compared_through_the_stamps_of_their_own_stretches() -> None:
    import against_stamps

    # Ours saw 0.50 where the stamps say 0.40, Kineto 0.25 where they say 0.20: on the same work they agree.
    mine = Told(_stretch(0.50, 0.40, 0.44), {"silent": "nothing"}, _stretch(0.55, 0.44, 0.44))
    theirs = Told(_stretch(0.25, 0.20, 0.44), _stretch(0.3, 0.2, 0.44), _stretch(0.50, 0.40, 0.44))
    row = against_stamps.compare("a loop", mine, theirs, 3)  # type: ignore[arg-type]
    found = row["figures"]["busy"]
    assert row["silent_rounds"] == [1, 0]
    assert found["ours_to_kineto"] == pytest.approx(1.0)
    assert found["spread"] == pytest.approx([1.0, 1.0])
    assert found["to_stamps"] == pytest.approx([1.25, 1.25])
    assert found["stamps_without_a_tracer"] == pytest.approx([0.44, 0.44])


def test_a_loop_in_which_a_tracer_never_saw_a_kernel_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    import against_kineto
    import against_stamps

    for module in (against_stamps, against_kineto):
        sides = [Told(*[{"silent": "nothing"}] * 2) for _ in range(2)]
        row = module.compare("a loop", *sides, 2)  # type: ignore[attr-defined]
        assert (row["silent_rounds"], row["figures"]) == ([2, 2], {})
        module.show(row)  # type: ignore[attr-defined]
        assert "[2, 2]" in capsys.readouterr().out


@pytest.mark.torch
def test_busy_time_of_stamps_is_their_union() -> None:
    torch = pytest.importorskip("torch", reason="needs torch (the CPU build is enough)")
    import against_stamps

    # Two overlap from 5 to 10, one lies inside of another, and from 20 to 30 nothing runs.
    found = against_stamps.of_intervals(torch.tensor([[0, 10], [5, 20], [12, 15], [30, 40]]))
    assert found["busy"] == pytest.approx(30 / 40)
    assert found["gap_us a kernel"] == pytest.approx(10 / 4 / 1000)
    assert found["kernel_us"] == pytest.approx((10 + 15 + 3 + 10) / 4 / 1000)
