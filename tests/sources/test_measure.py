from __future__ import annotations

from pathlib import Path

import pytest

from replaywatch.contract.window import TracedWork, Window
from replaywatch.sources.reader import read
from replaywatch.sources.recording import Recording
from sources.chrome_trace import ChromeTrace


def recording_of(trace: ChromeTrace, tmp_path: Path) -> Recording:
    return read(trace.write(tmp_path / "t.json"))


def window_of(trace: ChromeTrace, tmp_path: Path) -> Window:
    (window,) = recording_of(trace, tmp_path).windows
    return window


def work_of(trace: ChromeTrace, tmp_path: Path) -> TracedWork:
    work = window_of(trace, tmp_path).traced
    assert work is not None
    return work


def test_eager_steps_add_up(tmp_path: Path) -> None:
    """20 kernels of 3 us, each 10 us of host work and a 4 us launch call before it, then a wait and 1 us."""
    work = work_of(ChromeTrace().steps(6), tmp_path)
    assert (work.steps, work.skipped_steps) == (5, 1)
    assert (work.eager_kernels, work.graph_kernels, work.launches) == (100, 0, 100)
    assert work.span_ns == 5 * (20 * 14_000 + 3_000 + 1_000)
    assert work.busy_ns == work.kernel_ns == 100 * 3_000
    assert work.launch_call_ns == 100 * 4_000
    assert (work.cpu_ops, work.python_calls, work.runtime_calls) == (100, 0, 5 * 21)
    assert work.sync_ns == 5 * 3_000
    assert work.host_fixed_ns == 5 * (1_000 + 10_000)
    assert work.has_cpu_events


def test_busy_is_a_union_over_streams(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(6):
        for number in range(4):
            trace.kernel(f"main_{number}", dur=20.0)
            trace.kernel(f"side_{number}", dur=20.0, stream=9)
        trace.wait()
        trace.now += 50.0
    work = work_of(trace, tmp_path)
    assert work.kernel_ns == work.kernels * 20_000
    assert work.busy_ns < work.kernel_ns * 0.7
    assert work.busy_ns <= work.span_ns
    assert work.chain_kernels == work.kernels / 2


def test_gaps_go_where_they_belong(tmp_path: Path) -> None:
    """Inside a replay 0.5 us between kernels; after it nothing until the next kernel; outside launch gaps."""
    trace = ChromeTrace().steps(6, graph=True)
    window = window_of(trace, tmp_path)
    work, timing = window.traced, window.timing
    assert work is not None
    assert (work.in_graph_gaps, work.in_graph_gap_ns) == (19 * work.steps, 19 * work.steps * 500)
    assert timing.replay is not None
    assert (timing.replay.count, timing.replay.sum) == (work.steps, work.steps * (20 * 3_000 + 19 * 500))
    assert work.graph_busy_ns == work.graph_kernel_ns == 20 * 3_000 * work.steps
    assert work.graph_launches == work.steps
    assert timing.graph_launch_call is not None
    assert timing.graph_launch_call.sum == 9_000 * work.steps
    assert timing.launch_call is not None
    assert timing.launch_call.count == work.launches == work.steps


def test_a_late_next_launch_is_a_gap_after_the_replay(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(8):
        begin = trace.now
        trace.replay(10)
        trace.wait()
        trace.now += 500.0
        trace.annotate(f"ProfilerStep#{number}", begin)
    window = window_of(trace, tmp_path)
    assert window.traced is not None
    assert window.timing.replay_gap is not None
    assert window.timing.replay_gap.count == window.traced.steps
    assert window.traced.replay_gap_ns == window.traced.steps * (500_000 + 9_000)
    assert window.traced.host_fixed_ns == window.traced.steps * 500_000


def test_copies_before_a_replay_are_its_inputs(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(6):
        begin = trace.now
        for _ in range(3):
            trace.copy("Memcpy DtoD (Device -> Device)", dur=2.0, size=1000)
        trace.kernel("void multi_tensor_apply_kernel<CopyFunctor>", dur=5.0)
        trace.kernel("CatArrayBatchedCopy", dur=5.0)
        trace.replay(20)
        trace.copy("Memcpy DtoH (Device -> Pageable)")
        trace.wait()
        trace.annotate(f"ProfilerStep#{number}", begin)
    work = work_of(trace, tmp_path)
    assert work.input_copies == 4 * work.steps
    assert work.input_copy_ns == work.steps * (3 * 2_000 + 5_000)
    assert work.input_copy_bytes == work.steps * 3_000
    assert (work.copies, work.copy_ns) == (4 * work.steps, 4 * work.steps * 2_000)


def test_copies_of_eager_steps_are_no_inputs(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(6):
        begin = trace.now
        trace.copy()
        for _ in range(30):
            trace.kernel("eager")
        trace.replay(2)
        trace.wait()
        trace.annotate(f"ProfilerStep#{number}", begin)
    assert work_of(trace, tmp_path).input_copies == 0


def test_a_copy_to_pageable_memory_is_a_wait(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(6):
        begin = trace.now
        trace.kernel("a")
        trace.kernel("b")
        correlation = trace.call("cudaMemcpyAsync", 40.0)
        trace.now -= 30.0
        trace.activity("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", correlation, 2.0)
        trace.now += 30.0 + 25.0
        trace.annotate(f"ProfilerStep#{number}", begin)
    work = work_of(trace, tmp_path)
    assert work.sync_ns == 40_000 * work.steps
    assert work.host_fixed_ns == 25_000 * work.steps


@pytest.mark.parametrize(
    ("replays", "nodes", "eager", "mode"),
    [(1, 40, 2, "full"), (3, 20, 4, "full"), (8, 10, 8, "piecewise"), (1, 20, 20, "piecewise"), (1, 2, 60, "eager")],
)
def test_the_mode_of_a_step_follows_its_rule(tmp_path: Path, replays: int, nodes: int, eager: int, mode: str) -> None:
    trace = ChromeTrace()
    for number in range(5):
        begin = trace.now
        for _ in range(replays):
            trace.replay(nodes)
        for _ in range(eager):
            trace.kernel("eager")
        trace.wait()
        trace.annotate(f"ProfilerStep#{number}", begin)
    window = window_of(trace, tmp_path)
    assert window.dispatch.steps == {mode: 5}
    assert window.dispatch.replays == 5 * replays


def test_a_device_bound_loop_is_measured_on_the_device(tmp_path: Path) -> None:
    """The host runs far ahead: its steps take 40 us, the device needs 1 ms for each."""
    trace = ChromeTrace()
    for number in range(10):
        begin = trace.now
        for kernel in range(10):
            trace.kernel(f"k{kernel}", dur=100.0)
        trace.annotate(f"ProfilerStep#{number}", begin)
    work = work_of(trace, tmp_path)
    assert work.span_ns == work.steps * 1_000_000
    assert work.busy_ns == work.span_ns


def test_a_single_step_ends_with_the_last_recorded_event(tmp_path: Path) -> None:
    trace = ChromeTrace()
    begin = trace.now
    trace.call("cudaDeviceSynchronize", 14_000.0)
    for kernel in range(10):
        trace.now += 6.0
        trace.kernel(f"k{kernel}")
    trace.now += 50.0
    trace.call("cudaEventQuery", 20.0)
    trace.now += 9_000.0
    trace.annotate("ProfilerStep#0", begin)
    work = work_of(trace, tmp_path)
    assert work.span_ns == 9 * 10_000 + 50_000
    assert work.sync_ns == 0


def test_a_pause_inside_the_only_stretch_is_no_work(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for half in range(2):
        for number in range(60):
            trace.kernel(f"once_{half}_{number}")
        trace.wait()
        trace.now += 10_000_000.0 * (1 - half)
    work = work_of(trace, tmp_path)
    assert (work.steps, work.total_kernels) == (1, 120)
    assert work.span_ns < 2_000_000
    assert work.total_span_ns < 2_000_000


def test_the_picture_shows_one_step(tmp_path: Path) -> None:
    recording = recording_of(ChromeTrace().steps(6, graph=True), tmp_path)
    picture = recording.pictures[recording.windows[0].workload.key]
    lanes = {span.lane for span in picture.spans}
    assert lanes == {"host 1", "stream 7"}
    assert sum(span.from_graph and span.lane == "stream 7" for span in picture.spans) == 20
    assert min(span.start_ns for span in picture.spans) == 0
    assert max(span.start_ns + span.duration_ns for span in picture.spans) <= picture.duration_ns


def test_a_picture_has_a_limit(tmp_path: Path) -> None:
    recording = recording_of(ChromeTrace().steps(3, kernels=5000, host=1.0), tmp_path)
    (picture,) = recording.pictures.values()
    assert len(picture.spans) == 4000


def test_reading_twice_gives_equal_windows(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(5)
    assert recording_of(trace, tmp_path) == recording_of(trace, tmp_path)


def test_a_stall_on_the_host_stays_when_everything_is_captured(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(6):
        begin = trace.now
        trace.now += 5_000.0
        for kernel in range(30):
            trace.now += 20.0
            trace.kernel(f"k{kernel}")
        trace.annotate(f"ProfilerStep#{number}", begin)
    work = work_of(trace, tmp_path)
    assert work.host_stall_ns == work.steps * 5_000_000
    assert work.host_fixed_ns == 0


def test_a_thread_that_waits_for_another_is_no_stall(tmp_path: Path) -> None:
    """Forward and backward run on two threads; each is silent while the other launches."""
    trace = ChromeTrace()
    for number in range(6):
        begin = trace.now
        for thread in (1, 2):
            for kernel in range(50):
                trace.now += 20.0
                correlation = trace.call("cudaLaunchKernel", tid=thread)
                trace.activity("kernel", f"k{thread}_{kernel}", correlation, 3.0)
        trace.annotate(f"ProfilerStep#{number}", begin)
    work = work_of(trace, tmp_path)
    assert work.host_fixed_ns == 0
    assert work.launches == 100 * work.steps
