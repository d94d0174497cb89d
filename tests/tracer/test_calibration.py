"""Launch costs, measured with null kernels in the context of the process, without harming a capture elsewhere."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import fields
from typing import Any

import pytest

from replaywatch.contract.window import TracedWork
from replaywatch.probe.settings import settle
from replaywatch.probe.sight import Sight
from replaywatch.probe.tracing import CALIBRATED, Tracing
from tracer import fake_world, readings
from tracer.fake_world import World
from tracer.workloads import replay_at


def _calibrate(device: int, trace: bool) -> tuple[dict[str, int], int, int]:
    fake_world.begin()
    fake_world.cuda().fake_cuda_set(b"global_capture", 1)
    found = fake_world.tracer().calibrate(device, trace)
    broken = fake_world.cuda().fake_cuda_get(b"capture_broken")
    fake_world.cuda().fake_cuda_set(b"global_capture", 0)
    return found, broken, fake_world.cuda().fake_cuda_get(b"live_objects")


@pytest.mark.parametrize("device", [-1, 0])
def test_costs_come_out_as_the_device_has_them(fresh_world: World, device: int) -> None:
    found, broken, live = fresh_world.call(_calibrate, device, False)
    assert found["launch_device_ns"] in (1899, 1900)  # events tell milliseconds in single precision
    assert found["graph_node_ns"] in (1419, 1420)
    assert found["launch_host_ns"] >= 0
    assert found["graph_launch_host_ns"] > 0
    assert "in_graph_gap_ns" not in found
    assert (broken, live) == (0, 0)


def test_the_gap_between_nodes_is_read_from_a_kernel_window(fresh_world: World) -> None:
    found, broken, live = fresh_world.call(_calibrate, -1, True)
    assert found["in_graph_gap_ns"] == 420
    assert found["null_kernel_ns"] == 1000
    assert {name for _, name in CALIBRATED} <= set(found)
    assert {field for field, _ in CALIBRATED} <= {f.name for f in fields(TracedWork)}
    assert (broken, live) == (0, 0)


def _before_the_first_stretch() -> tuple[list[Any], int]:
    fake_world.begin()
    probe = Tracing(settle({"kernels": True}, {}), Sight(), fake_world.tracer, lambda: False)
    probe.run(1, 1, duration_ms=2)
    while not probe.results or "traced" not in probe.results[-1]:
        threading.Timer(0.02, _replay).start()
        probe.run(1, 1, duration_ms=200)
    return probe.results, probe.windows


def _replay() -> None:
    now = ctypes.c_uint64()
    fake_world.cupti().cuptiGetTimestamp(ctypes.byref(now))
    for i in range(12):
        fake_world.launch(replay_at(1, i * 60_000, 10), now.value)
    fake_world.cupti().fake_advance(ctypes.c_uint64(5_000_000))


def test_what_launches_cost_goes_with_the_first_work_that_is_traced(fresh_world: World) -> None:
    results, windows = fresh_world.call(_before_the_first_stretch)
    work = readings.traced(results[-1])
    assert work.calibrated_graph_gap_ns == 420
    assert work.calibrated_launch_ns is not None
    assert work.calibrated_graph_launch_ns is not None
    assert work.total_graph_kernels > 0  # of the work alone: kernels of the calibration are left out
    assert work.total_kernels == work.total_graph_kernels <= 12 * 10
    assert windows >= 2 + len(results)


def _on_a_helper_thread() -> tuple[dict[str, int], int]:
    fake_world.cuda().fake_cuda_set(b"current", 0)
    return fake_world.tracer().calibrate(trace=False), fake_world.cuda().fake_cuda_get(b"live_objects")


def test_a_thread_without_a_context_finds_the_one_of_the_process(fresh_world: World) -> None:
    found, live = fresh_world.call(_on_a_helper_thread)
    assert found["graph_launch_host_ns"] > 0
    assert live == 0


def _without_context(device: int) -> str:
    fake_world.cuda().fake_cuda_set(b"context", 0)
    try:
        with pytest.raises(RuntimeError) as refused:
            fake_world.tracer().calibrate(device)
        return str(refused.value)
    finally:
        fake_world.cuda().fake_cuda_set(b"context", 1)


def test_no_context_is_made(fresh_world: World) -> None:
    assert "the process has no CUDA context" in fresh_world.call(_without_context, -1)
    assert "no primary context on device 0" in fresh_world.call(_without_context, 0)
    assert "cuDevicePrimaryCtxGetState failed" in fresh_world.call(_without_context, 5)
