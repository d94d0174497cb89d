"""Sampled timing of replays, gaps, step periods, and replays that never end."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe.harness import GENERATIONS, seen

START = "import replaywatch.probe as probe; probe.start()\n"
GRAPHS = """
import torch, time
from torch import device
torch.cuda.init()
def captured(duration_ns=100_000):
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        pass
    made.duration_ns = duration_ns
    return made
"""


@pytest.mark.parametrize("torch", ["2.4", "2.13", "2.14"])
def test_one_replay_in_n_is_timed_on_the_device(torch: str, tmp_path: Path) -> None:
    window = seen(
        START + GRAPHS + "made = captured(2_000_000)\nfor _ in range(60):\n    made.replay(); time.sleep(0.008)\n"
        "time.sleep(0.5)\n",
        tmp_path,
        torch,
        REPLAYWATCH_PROBE_TIME_ONE_IN="4",
    )
    replay, gap = window.timing.replay, window.timing.replay_gap
    assert replay is not None
    assert 4 <= replay.count <= 16  # every fourth, and at most one in 20 ms
    assert replay.mean == pytest.approx(2e6, rel=0.1)
    assert gap is not None
    assert gap.count >= 4
    assert 4e6 < (gap.mean or 0) < 12e6


def test_nothing_is_recorded_or_queried_while_something_is_captured(tmp_path: Path) -> None:
    """The stand-in's events assert that they are not recorded into a capture, and note queries during one."""
    window = seen(
        START
        + GRAPHS
        + """
made = captured()
device.here.stream = 1
for _ in range(10):
    made.replay()
nested = torch.cuda.CUDAGraph()
nested.capture_begin()
for _ in range(20):
    made.replay()
time.sleep(0.6)
nested.capture_end()
device.here.stream = 0
assert not device.queries_while_capturing
""",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="1",
    )
    assert window.dispatch.replays == 30
    assert window.cost is not None
    assert window.cost.errors == 0


def test_a_timed_replay_that_never_ends_is_reported_once_with_its_graph(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + "made = captured()\ndevice.hang = True\nfor _ in range(9):\n    made.replay()\ntime.sleep(1.5)\n",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="4",
        REPLAYWATCH_PROBE_HANG_SECONDS="0.3",
    )
    stuck = [o for o in window.observations if o.kind == "replay_stuck"]
    assert stuck
    assert "graph 1 of user" in stuck[0].detail
    assert window.timing.replay is None


def test_a_thread_that_stands_still_behind_a_replay_is_reported(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + "made = captured()\nfor _ in range(8):\n    made.replay(); time.sleep(0.01)\n"
        + "time.sleep(0.3)\ndevice.hang = True\nmade.replay()\ntime.sleep(3.5)\n",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="4",
        REPLAYWATCH_PROBE_HANG_SECONDS="0.5",
    )
    stuck = [o for o in window.observations if o.kind == "replay_stuck"]
    assert [o.where for o in stuck] == ["the thread stands still and its stream has unfinished work"]


def test_a_process_that_only_waits_is_not_stuck(tmp_path: Path) -> None:
    window = seen(
        START + GRAPHS + "made = captured()\nfor _ in range(9):\n    made.replay()\ntime.sleep(2.5)\n",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="4",
        REPLAYWATCH_PROBE_HANG_SECONDS="0.3",
    )
    assert [o for o in window.observations if o.kind == "replay_stuck"] == []


@pytest.mark.parametrize("torch", GENERATIONS)
def test_a_step_of_many_graphs_is_one_step(torch: str, tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
pieces = [captured() for _ in range(5)]
for _ in range(60):
    for piece in pieces:
        piece.replay()
    time.sleep(0.004)
""",
        tmp_path,
        torch,
    )
    assert window.dispatch.replays == 300
    period = window.timing.step_period
    assert period is not None
    assert 40 <= period.count <= 110  # the order of graphs is learnt in the first eight steps
    assert (period.quantile(0.5) or 0) > 3e6


def test_a_device_error_seen_by_a_query_is_reported_and_ends_the_timing(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
made = captured()
def query(self):
    raise device.error(700, "an illegal memory access was encountered")
torch.cuda.Event.query = query
for _ in range(40):
    made.replay(); time.sleep(0.01)
""",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="4",
        PYTHONWARNINGS="default",
    )
    assert window.dispatch.replays == 40
    assert [o.detail for o in window.observations] == ["query of a timed replay: cudaErrorIllegalAddress"]
    assert "replay timing" in {b.signal for b in window.blind}


def test_tiny_graphs_are_not_timed_more_often_than_fifty_times_a_second(tmp_path: Path) -> None:
    window = seen(
        START + GRAPHS + "made = captured(1000)\nbegin = time.time()\n"
        "while time.time() < begin + 1:\n    made.replay()\ntime.sleep(0.3)\n",
        tmp_path,
        REPLAYWATCH_PROBE_TIME_ONE_IN="2",
    )
    assert window.timing.replay is not None
    assert 5 <= window.timing.replay.count <= 51
    assert (window.dispatch.replays or 0) > 1000


def test_steps_of_a_loop_of_ones_own_are_timed_by_mode(tmp_path: Path) -> None:
    window = seen(
        START
        + """
import time, torch
torch.cuda.init()
for mode in ("full", "eager"):
    for _ in range(40):
        probe.record_step(mode, batch=4, phase="decode")
        time.sleep(0.004 if mode == "full" else 0.012)
time.sleep(0.2)
""",
        tmp_path,
    )
    assert window.dispatch.steps == {"full": 40, "eager": 40}
    assert window.workload.phase is None
    by_mode = window.timing.step_by_mode
    assert by_mode is not None
    full, eager = by_mode["full"].mean, by_mode["eager"].mean
    assert full is not None
    assert eager is not None
    assert by_mode["full"].count >= 35
    assert 2 < eager / full < 4
