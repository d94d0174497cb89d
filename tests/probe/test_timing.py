"""Sampled timing of replays, gaps, step periods, and replays that never end."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from probe.harness import GENERATIONS, seen
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import Recorders
from replaywatch.probe.stuck import FOREIGN, StuckWatch

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


@pytest.mark.parametrize(
    ("before", "one_in", "torch"), [(0, "64", "2.4"), (0, "0", "2.14"), (2, "64", "2.13"), (8, "4", "2.13")]
)
def test_a_thread_that_stands_still_behind_a_replay_is_reported(
    before: int, one_in: str, torch: str, tmp_path: Path
) -> None:
    window = seen(
        START
        + GRAPHS
        + f"made = captured()\nfor _ in range({before}):\n    made.replay(); time.sleep(0.01)\n"
        + "device.hang = True\nmade.replay()\ntime.sleep(3.5)\n",
        tmp_path,
        torch,
        REPLAYWATCH_PROBE_TIME_ONE_IN=one_in,
        REPLAYWATCH_PROBE_HANG_SECONDS="0.5",
    )
    stuck = [o for o in window.observations if o.kind == "replay_stuck"]
    assert [o.where for o in stuck] == ["the thread stands still and its stream has unfinished work"]
    assert ("replay timing" in {b.signal for b in window.blind}) == (one_in == "0")


def test_a_stream_that_torch_does_not_own_is_not_asked_and_is_blind(tmp_path: Path) -> None:
    window = seen(
        START + GRAPHS + "made = captured()\ndevice.here.stream = 4096\n"
        "def query(self):\n    raise AssertionError('the stream may be gone')\ntorch.cuda.Stream.query = query\n"
        "made.replay()\ntime.sleep(2.5)\n",
        tmp_path,
        REPLAYWATCH_PROBE_HANG_SECONDS="0.3",
    )
    assert {b.signal: b.reason for b in window.blind}["hang watch"] == FOREIGN


def test_a_capture_that_nobody_ends_is_blind_until_it_is_over(tmp_path: Path) -> None:
    window = seen(
        START
        + GRAPHS
        + """
def told():
    return "hang watch" in {b["signal"] for b in session.current().sight.blind_spots()}
from replaywatch.probe import session
kept = torch.cuda.CUDAGraph()
device.here.stream = 1
kept.capture_begin()
end = time.time() + 10
while not told() and time.time() < end:
    time.sleep(0.05)
assert told()
kept.capture_end()
while told() and time.time() < end:
    time.sleep(0.05)
assert not told()
""",
        tmp_path,
        REPLAYWATCH_PROBE_HANG_SECONDS="0.3",
    )
    assert "a capture of user does not end; nothing is timed, traced or watched meanwhile" in {
        b.reason for b in window.blind if b.signal == "hang watch"
    }


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_capture_that_the_driver_knows_no_more_is_given_up(tmp_path: Path) -> None:
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text("int cuStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }\n"
                      "int cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }\n")  # fmt: skip
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    window = seen(
        f"import ctypes; driver = ctypes.CDLL({str(library)!r})\n"
        + START
        + GRAPHS
        + """
kept = torch.cuda.CUDAGraph()
device.here.stream = 1
kept.capture_begin()
device.capturing_streams.clear()
device.here.stream = 0
made = captured()
time.sleep(2.5)
device.hang = True
made.replay()
time.sleep(3.5)
""",
        tmp_path,
        REPLAYWATCH_PROBE_HANG_SECONDS="0.5",
    )
    assert window.dispatch.captures == {"ok": 1, "failed": 1}
    assert window.dispatch.failed_calls == {"abandoned": 1}
    assert sorted({o.kind for o in window.observations}) == ["capture_failed", "replay_stuck"]


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


def test_work_without_a_replay_before_a_short_wait_is_no_hang() -> None:
    class Busy:
        stream_id = 0

        def query(self) -> bool:
            return False

    sight, wait, told = Sight(), threading.Event(), threading.Event()
    recorders = Recorders(64, lambda: None)

    def stand_still() -> None:
        recorder = recorders.new()
        recorder.n = recorder.read = 1
        recorder.last_start_ns, recorder.stream = 1, Busy()
        told.set()
        wait.wait()

    thread = threading.Thread(target=stand_still)
    thread.start()
    told.wait()
    watch = StuckWatch(GraphLedger(sight, recorders, lambda: None), sight, 30.0)
    counts = []
    for second in (100, 101, 110, 116, 117):
        watch.look(second * 10**9)
        counts.append(len(sight.take_observations()))
    wait.set()
    thread.join()
    assert counts == [0, 0, 0, 1, 0]
