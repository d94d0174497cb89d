"""Graph-level records: only from the start of a process, and never beside kernel windows."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest

from replaywatch.contract.histogram import Histogram
from replaywatch.probe.settings import settle
from replaywatch.probe.sight import Sight
from replaywatch.probe.tracing import BURST_S, INSTEAD_OF_KERNELS, Tracing
from tracer import fake_world
from tracer.builds import ROOT, build
from tracer.fake_world import World
from tracer.workloads import replay_at


def _from_the_start() -> Any:
    fake_world.cuda().fake_cuda_set(b"initialised", 0)
    base = fake_world.begin()
    tracer = fake_world.tracer()
    tracer.enable_graph_level()
    fake_world.cuda().fake_cuda_set(b"initialised", 1)
    fake_world.cupti().fake_instantiate()
    for i in range(20):
        fake_world.launch(replay_at(1, i * 60_000, 10), base)
    fake_world.cupti().fake_advance(ctypes.c_uint64(5_000_000))
    return tracer.run_window(5)


def test_replays_are_timed_when_chosen_before_cuda_is_initialised(fresh_world: World) -> None:
    found = fresh_world.call(_from_the_start)
    device = found["devices"][0]
    length = 10 * 2920 - 420
    assert device["graph_level"]
    assert device["replays"] == 20
    assert found["timing"]["replay"]["n"] == 20
    assert found["timing"]["replay"]["b"] == {str(i): c for i, c in Histogram.of([length] * 20).buckets.items()}
    assert found["timing"]["replay_gap"]["s"] == 19 * (60_000 - length)
    assert "traced" not in found


def _as_the_probe_does() -> tuple[Any, list[dict[str, str]]]:
    fake_world.cuda().fake_cuda_set(b"initialised", 0)
    base, sight = fake_world.begin(), Sight()
    probe = Tracing(settle({"graph_trace": True}, {}), sight, fake_world.tracer, lambda: False)
    assert not probe.due(1)
    probe.begin_graph_trace()
    fake_world.cuda().fake_cuda_set(b"initialised", 1)
    fake_world.cupti().fake_instantiate()
    for i in range(20):
        fake_world.launch(replay_at(1, i * 60_000, 10), base)
    fake_world.cupti().fake_advance(ctypes.c_uint64(5_000_000))
    probe.work_began(1)
    now_ns = 1 + int(BURST_S[0] * 1e9)
    assert probe.due(now_ns)
    probe.run(now_ns, 1)
    return probe.take()[0], sight.blind_spots()


def test_the_probe_hands_replays_that_were_traced_as_a_whole_on(fresh_world: World) -> None:
    results, blind = fresh_world.call(_as_the_probe_does)
    assert [result["timing"]["replay"]["n"] for result in results] == [20]
    assert blind == [{"signal": "kernels", "reason": INSTEAD_OF_KERNELS}]


def _late() -> str:
    fake_world.begin()
    fake_world.cupti().fake_instantiate()
    with pytest.raises(RuntimeError) as refused:
        fake_world.tracer().enable_graph_level()
    fake_world.launch(replay_at(1, 0, 10), 0)  # would abort had it been enabled
    return str(refused.value)


def test_late_graph_level_is_refused(fresh_world: World) -> None:
    assert "CUDA is initialised" in fresh_world.call(_late)


def _on_old_cupti() -> str:
    fake_world.cuda().fake_cuda_set(b"initialised", 0)
    with pytest.raises(RuntimeError) as refused:
        fake_world.tracer().enable_graph_level()
    return str(refused.value)


def test_graph_level_is_refused_where_copy_nodes_crash() -> None:
    with World(build("plain"), 22) as world:
        assert "cannot be told apart" in world.call(_on_old_cupti)


def test_the_fake_crashes_as_cupti_does_when_graph_level_comes_late() -> None:
    code = (
        "import ctypes; c = ctypes.CDLL('libcupti.so.13'); g = c.fake_instantiate(); c.cuptiActivityEnable(51);"
        "t = (ctypes.c_uint64 * 1)(1); s = (ctypes.c_uint32 * 1)(1); c.fake_launch_graph(g, 0, 1, s, t, t, 0)"
    )
    folder = build("plain")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode < 0
    assert "before graph-level tracing" in done.stderr
