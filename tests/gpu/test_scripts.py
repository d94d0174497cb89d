"""What of the measurements on GPUs runs without one: their commands start, and their sums are right."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent.nvml_stand_in import Counting

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


def _stretch(told: float, stamps: float, bare: float, rate: float) -> dict[str, Any]:
    return {
        "told": {"busy": told, "kernels a second": rate}, "stamps": {"busy": stamps, "kernels a second": rate},
        "bare": {"busy": bare, "kernels a second": rate},
    }  # fmt: skip


def test_tracers_are_compared_through_the_stamps_of_their_own_stretches() -> None:
    import against_stamps

    # Ours added 0.10 to its stamps at 200,000 kernels a second, Kineto 0.05 at half as many: on the same work alike.
    ours = [_stretch(0.50, 0.40, 0.44, 200_000.0), {"silent": "nothing"}, _stretch(0.70, 0.60, 0.44, 200_000.0)]
    kinetos = [_stretch(0.25, 0.20, 0.44, 1e5), _stretch(0.3, 0.2, 0.44, 1e5), _stretch(0.45, 0.40, 0.44, 1e5)]
    row = against_stamps.compare("a loop", Told(*ours), Told(*kinetos), 3)  # type: ignore[arg-type]
    found = row["figures"]["busy"]
    assert row["silent_rounds"] == [1, 0]
    assert found["ours_to_kineto"] == pytest.approx(1.0)
    assert found["spread"] == pytest.approx([1.0, 1.0])
    assert found["to_stamps"] == pytest.approx([(0.50 / 0.40 + 0.70 / 0.60) / 2, (0.25 / 0.20 + 0.45 / 0.40) / 2])
    assert found["stamps_without_a_tracer"] == pytest.approx([0.44, 0.44])


def test_tracers_that_differ_are_told_to_differ_also_where_kernels_were_longer_for_one() -> None:
    import against_stamps

    stamps = {"kernel_us": 2.0, "kernels a second": 1e5}
    # Kineto added 0.7 us to kernels of 2 us; ours, of 3 us, would have been 3.7 us to it and not 3 * 2.7 / 2.
    found = against_stamps.on_our_work("kernel_us", 3.0, 1e5, {"kernel_us": 2.7}, stamps)
    assert found == pytest.approx(3.7)
    # A share of the time grows with the kernels in it.
    stamps = {"idle": 0.5, "kernels a second": 1e5}
    assert against_stamps.on_our_work("idle", 0.4, 2e5, {"idle": 0.45}, stamps) == pytest.approx(0.3)


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


class Busy(Counting):
    """A device whose engine is active for 40 % of the time, which goes on from sample to sample."""

    def nvmlGpmSampleGet(self, handle: Any, sample: Any) -> Any:
        self.pass_time(1, 0.4)
        return super().nvmlGpmSampleGet(handle, sample)


def test_activity_is_read_between_one_sample_and_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpm

    nvml = Busy()
    monkeypatch.setattr(gpm, "library", lambda: nvml)
    monkeypatch.setattr(gpm, "PERIOD_S", 0.01)
    activity = gpm.Readings(0)
    while len(activity.rows) < 4 and activity.problem is None:
        time.sleep(0.005)
    activity.stop()
    assert activity.problem is None
    assert [share for _, _, share in activity.rows] == pytest.approx([0.4] * len(activity.rows))
    assert activity.mean(activity.rows[1][0], activity.rows[2][1]) == pytest.approx(0.4)
    assert activity.mean(0, 1) is None


def test_where_nvml_is_missing_activity_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpm

    monkeypatch.setattr(gpm, "MODULES", ("no_such_nvml",))
    activity = gpm.Readings(0)
    activity.stop()
    assert activity.problem is not None
    assert "no_such_nvml" in activity.problem
    assert activity.mean(0, 1 << 62) is None


def test_the_benchmark_marks_figures_of_replays_that_the_probe_did_not_see() -> None:
    sys.path[:0] = [str(HERE.parent / "bench")]
    import bench_probe

    assert bench_probe.uncounted("graph, batch 1", 40, 40) == bench_probe.uncounted("eager, batch 1", 40, 0) == {}
    assert "counted 0 replays of 40" in bench_probe.uncounted("graph, batch 1", 40, 0)["problem"]
    assert "counted 3 replays of 0" in bench_probe.uncounted("eager, batch 8", 40, 3)["problem"]


def test_a_soak_that_the_probe_did_not_see_is_none() -> None:
    import soak

    def ran(**victim: int) -> dict[str, Any]:
        counts = {"checks": 9, "profile of 2037 kernels": 3, **victim}
        return {"victim": counts, "exit_status": 0, "hangs": 0, "finished": True}

    alone = ran()
    assert soak.verdict(alone, None) == []
    assert soak.verdict(ran(**{soak.SEEN: 7}), alone) == []
    assert soak.verdict(ran(**{soak.SEEN: 0}), alone) == ["the probe saw nothing of it"]
    assert soak.verdict(ran(**{soak.SEEN: 7, "profile of 1020 kernels": 2}), alone) == ["2 profiles of 1020 kernels"]


def test_a_way_that_prints_no_row_is_told_as_an_error(tmp_path: Path) -> None:
    import ways

    script = tmp_path / "script.py"
    script.write_text("import sys, time\nway = sys.argv[2]\nprint('{\"way\": \"good\"}') if way == 'good' else None\n"
                      "time.sleep(60 * (way == 'slow'))\nsys.exit('broken' * (way == 'bad'))")  # fmt: skip
    assert ways.run_alone(str(script), "good", timeout_s=20) == {"way": "good"}
    assert ways.run_alone(str(script), "bad", timeout_s=20) == {"way": "bad", "error": "broken", "exit": 1}
    assert ways.run_alone(str(script), "slow", timeout_s=0.5) == {"way": "slow", "error": "no end in 0.5 s"}


def test_what_is_said_of_the_order_of_kinds_is_what_was_recorded() -> None:
    """DESIGN, CHANGELOG and window.cpp say: 46 of 166 windows in 9 of 14 processes, and none of 188 in 11."""
    recorded = json.loads((HERE.parents[1] / "docs/data/silent-2026-11-30.json").read_text())
    told: dict[bool, list[list[bool]]] = {True: [], False: []}
    for row in recorded["ways"]:
        if row["way"] != "copies alone":
            silent = [sum(window) == 0 for windows in row["windows"].values() for window in windows]
            told[row["way"].startswith("kernels")].append(silent)
    sums = {first: (sum(map(any, rows)), len(rows), sum(map(sum, rows)), sum(map(len, rows)))
            for first, rows in told.items()}  # fmt: skip
    assert sums == {False: (9, 14, 46, 166), True: (0, 11, 0, 188)}


def test_no_window_of_the_latest_day_was_silent_with_kernels_first() -> None:
    """CHANGELOG and DESIGN: 39 of 200 windows in 9 of 10 processes, and none of 160 in 8."""
    recorded = json.loads((HERE.parents[1] / "docs/data/silent-2026-11-30-kernels-first.json").read_text())
    sums = {}
    for first in (True, False):
        rows = [row["loops"].values() for row in recorded["ways"] if row["way"].startswith("kernels") is first]
        silent = [[not w["on"] + w["flushed"] + w["forced"] for ws in loops for w in ws] for loops in rows]
        sums[first] = (sum(map(any, silent)), len(silent), sum(map(sum, silent)), sum(map(len, silent)))
    assert sums == {False: (9, 10, 39, 200), True: (0, 8, 0, 160)}
