from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replaywatch.contract.window import TracedWork, Window
from replaywatch.sources.annotations import engine_label, is_inner
from replaywatch.sources.kineto import read_kineto
from replaywatch.sources.reader import read
from replaywatch.sources.steps import StepPlan, plan_steps
from sources.chrome_trace import ChromeTrace, write_json


def plan_of(path: Path) -> StepPlan:
    timeline = read_kineto(path)
    return plan_steps(timeline, next(iter(timeline.devices.values())))


def windows_of(trace: ChromeTrace, tmp_path: Path) -> dict[str | None, Window]:
    return {w.workload.phase: w for w in read(trace.write(tmp_path / "t.json")).windows}


def work_of(trace: ChromeTrace, tmp_path: Path) -> TracedWork:
    (window,) = read(trace.write(tmp_path / "t.json")).windows
    assert window.traced is not None
    return window.traced


@pytest.mark.parametrize(
    ("name", "engine", "phase", "batch"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", "vllm", "prefill", 1),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", "vllm", "decode", 32),
        ("execute_8192_context_9(sq8155)_generation_37(sq37)", "vllm", "mixed", 46),
        ("execute_context_0(0)_generation_0(0)", "vllm", None, None),
        ("execute_context_3_generation_2", "vllm", "mixed", 5),
        ("step[DECODE bs=64]", "sglang", "decode", 64),
        ("step[EXTEND bs=2 toks=14721]", "sglang", "prefill", 2),
        ("step[MIXED bs=2 c_sq=4]", "sglang", "mixed", 2),
        ("step[IDLE bs=0]", "sglang", None, None),
        ("[Executor] _forward_step 7: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", "trtllm", "decode", 32),
        ("[Executor] _forward_step: 2 ctx reqs, 3 gen reqs", "trtllm", "mixed", 5),
    ],
)
def test_engine_annotations_tell_phase_and_batch(name: str, engine: str, phase: str | None, batch: int | None) -> None:
    label = engine_label(name)
    assert label is not None
    assert (label.engine, label.phase, label.batch_size) == (engine, phase, batch)


@pytest.mark.parametrize("name", ["forward", "ProfilerStep#3", "nccl:all_reduce", "execute_order_66", ""])
def test_other_annotations_are_no_engine_steps(name: str) -> None:
    assert engine_label(name) is None


@pytest.mark.parametrize(
    "name",
    ["nccl:all_reduce", "Optimizer.step#Adam.step", "enumerate(DataLoader)#x", "aten::mm, op_id = 3", "## forward ##"],
)
def test_what_libraries_open_inside_steps_marks_none(name: str) -> None:
    assert is_inner(name)


def test_profiler_steps_are_steps(tmp_path: Path) -> None:
    plan = plan_of(ChromeTrace().steps(5).write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("profiler", 5)
    assert [sum(m == n for m in plan.member) for n in range(5)] == [20] * 5


def test_phases_become_windows_of_their_own(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(4):
        trace.steps(1, kernels=40, name="execute_context_2(512_512)_generation_0(0)")
        trace.steps(5, graph=True, name="execute_context_0(0)_generation_8(8)")
    found = windows_of(trace, tmp_path)
    assert set(found) == {"prefill", "decode"}
    assert found["decode"].dispatch.steps == {"full": 20}
    assert found["decode"].dispatch.batch_sizes == {8: 20}
    assert found["prefill"].dispatch.steps == {"eager": 4}
    assert found["prefill"].dispatch.eager_batch_sizes == {2: 4}
    prefill, decode = found["prefill"].traced, found["decode"].traced
    assert prefill is not None
    assert decode is not None
    assert prefill.total_kernels + decode.total_kernels == 4 * 40 + 20 * 21
    assert (prefill.coverage, decode.coverage) == (0.0, pytest.approx(20 / 21))


def test_a_repeated_annotation_around_most_launches_is_the_step(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(6):
        begin = trace.now
        inner = trace.now
        trace.eager_step(kernels=10)
        trace.annotate("nccl:all_reduce", inner)
        trace.annotate(f"generate token {number}", begin)
        trace.now += 5.0
    plan = plan_of(trace.write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("annotation", 6)


def test_an_annotation_around_few_launches_is_not_the_step(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(6):
        trace.eager_step(kernels=10, host=8.0)
        begin = trace.now
        trace.kernel("sampler")
        trace.annotate("sample", begin)
    assert plan_of(trace.write(tmp_path / "t.json")).source == "pattern"


def test_without_annotations_the_launch_pattern_makes_the_steps(tmp_path: Path) -> None:
    named = ChromeTrace().steps(8)
    bare = ChromeTrace().steps(8, name=None)
    plan = plan_of(bare.write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("pattern", 8)
    assert work_of(bare, tmp_path) == work_of(named, tmp_path)


def test_the_pattern_survives_odd_kernels(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(12):
        trace.steps(1, kernels=30, name=None)
        if number % 5 == 2:
            trace.kernel("allocate_block")
    assert len(plan_of(trace.write(tmp_path / "t.json")).steps) == 12


def layered(trace: ChromeTrace, layers: int) -> None:
    trace.kernel("embed")
    for _ in range(layers):
        for name in ("norm", "qkv", "rope", "attention", "out", "mlp"):
            trace.now += 4.0
            trace.kernel(name)
    for name in ("final_norm", "head", "argmax"):
        trace.kernel(name)
    trace.wait()


def test_layers_are_not_taken_for_steps(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(6):
        layered(trace, 12)
    plan = plan_of(trace.write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("pattern", 6)
    first = read_kineto(tmp_path / "t.json")
    begins = [first.names.texts[t] for t in first.devices[0, 0].name[:1]]
    assert begins == ["embed"]
    assert plan.member[0] == 0


def test_replays_alone_are_steps(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(7, graph=True, name=None)
    plan = plan_of(trace.write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("pattern", 7)


def test_steps_are_found_on_the_device_where_no_call_is_recorded(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(9, name=None)
    events = [event for event in trace.events if event["cat"] == "kernel"]
    plan = plan_of(write_json(tmp_path / "t.json", events))
    assert (plan.source, len(plan.steps)) == ("pattern", 9)


def test_one_kernel_over_and_over_is_one_stretch(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(50):
        trace.kernel("matmul", dur=100.0)
    plan = plan_of(trace.write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("whole", 1)


def test_kernels_without_a_call_join_the_step_around_them(tmp_path: Path) -> None:
    """Older tracers record no driver calls, so Triton's kernels have none."""
    trace = ChromeTrace().steps(5)
    events: list[dict[str, Any]] = []
    for event in trace.events:
        if event["name"] == "kernel_3":
            event["args"]["correlation"] += 1_000_000
        events.append(event)
    (window,) = read(write_json(tmp_path / "t.json", events)).windows
    assert window.traced is not None
    assert window.traced.kernels == 20 * window.traced.steps
    assert window.traced.unmatched_kernels == 3 * window.traced.steps


def test_an_outlier_is_left_out_and_counted(tmp_path: Path) -> None:
    plain = work_of(ChromeTrace().steps(8), tmp_path)
    trace = ChromeTrace().steps(4)
    trace.now += 2_000.0
    trace.steps(4)
    work = work_of(trace, tmp_path)
    assert (plain.steps, plain.skipped_steps) == (7, 1)
    assert (work.steps, work.skipped_steps) == (6, 2)
    assert work.span_ns / work.steps == pytest.approx(plain.span_ns / plain.steps, rel=0.01)


def test_a_long_pause_is_taken_out_of_the_whole_stretch(tmp_path: Path) -> None:
    plain = work_of(ChromeTrace().steps(8), tmp_path)
    trace = ChromeTrace().steps(4)
    trace.now += 5_000_000.0
    trace.steps(4)
    work = work_of(trace, tmp_path)
    assert work.total_span_ns == pytest.approx(plain.total_span_ns, rel=0.05)
    assert work.busy_ratio == pytest.approx(plain.busy_ratio, rel=0.05)


def test_a_warm_up_step_is_left_out(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(1, kernels=35).steps(6)
    work = work_of(trace, tmp_path)
    assert work.kernels == 20 * work.steps
    assert (work.steps, work.skipped_steps) == (5, 2)


def test_a_capture_is_neither_a_step_nor_a_stall(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(3)
    begin = trace.now
    trace.call("cudaStreamBeginCapture", 5.0)
    for number in range(20):
        trace.now += 2.0
        trace.call("cudaLaunchKernel")
        if number == 10:
            trace.kernel("helper", stream=9)
    trace.call("cudaStreamEndCapture", 8.0)
    trace.call("cudaGraphInstantiateWithFlags", 50.0)
    trace.annotate("ProfilerStep#3", begin)
    trace.steps(4, graph=True)
    (window,) = read(trace.write(tmp_path / "t.json")).windows
    assert window.dispatch.captures == {"ok": 1}
    assert window.dispatch.instantiations == 1
    assert window.dispatch.steps == {"eager": 3, "full": 4}
    assert window.timing.capture is not None
    assert window.timing.capture.count == 1


def test_launches_that_never_run_are_a_capture_too(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(4)
    begin = trace.now
    for _ in range(20):
        trace.call("cudaLaunchKernel")
    trace.kernel("helper")
    trace.annotate("ProfilerStep#4", begin)
    trace.steps(4)
    (window,) = read(trace.write(tmp_path / "t.json")).windows
    assert window.dispatch.steps == {"eager": 8}
    assert window.traced is not None
    assert window.traced.launches == 20 * window.traced.steps


def test_what_happens_every_other_step_does_not_double_the_step(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(10):
        for kernel in range(250):
            trace.kernel(f"k{kernel % 200}")
        trace.wait()
        if number % 2:
            trace.kernel("refill_a")
            trace.kernel("refill_b")
    assert len(plan_of(trace.write(tmp_path / "t.json")).steps) == 10


def test_a_long_prefill_does_not_hide_the_decode_steps(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(16):
        for number in range(40):
            trace.kernel(f"prefill_{number}", dur=20.0)
    for _ in range(24):
        for number in range(30):
            trace.kernel(f"decode_{number}")
        trace.wait()
    plan = plan_of(trace.write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("pattern", 24)


def test_a_lone_replay_repeated_is_the_step(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(6):
        trace.kernel("rng")
        trace.kernel("rng")
        trace.replay(50)
        trace.wait()
    plan = plan_of(trace.write(tmp_path / "t.json"))
    assert (plan.source, len(plan.steps)) == ("pattern", 6)


def test_where_every_step_captures_the_captures_are_how_it_runs(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(6):
        begin = trace.now
        trace.call("cudaStreamBeginCapture", 5.0)
        for _ in range(20):
            trace.call("cudaLaunchKernel")
        trace.call("cudaStreamEndCapture", 8.0)
        trace.call("cudaGraphInstantiateWithFlags", 50.0)
        trace.replay(20)
        trace.wait()
        trace.annotate(f"ProfilerStep#{number}", begin)
    (window,) = read(trace.write(tmp_path / "t.json")).windows
    assert window.dispatch.steps == {"full": 6}
    assert window.dispatch.captures == {"ok": 6}
    assert window.traced is not None
    assert window.traced.steps == 5
    assert window.timing.instantiate is not None
    assert window.timing.instantiate.sum == 6 * 50_000
