"""What each stable fault and its control must give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detectors.made import MS, SECOND, eager_work, evidence, replayed_work, window
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Finding
from replaywatch.contract.window import Dispatch, GraphMemory, Observation, Phase, Timing, TracedWork, Workload
from replaywatch.detectors.judge import Judgement, judge


def _finding(judgement: Judgement, detector: str) -> Finding:
    return next(f for f in judgement.findings if f.detector == detector)


def _detectors(judgement: Judgement) -> set[str]:
    return {f.detector for f in judgement.findings if f.is_fault}


def test_host_bound_eager_work_is_a_page_with_its_cost() -> None:
    judgement = judge(evidence(window(traced=eager_work())))
    found = _finding(judgement, "disabled")
    assert judgement.severity == found.severity == "page"
    assert found.estimate is not None
    assert 0.4 < found.estimate.low < found.estimate.ratio < found.estimate.high < 0.85
    assert found.remedy is not None
    assert "enforce-eager" in found.remedy


def test_eager_work_that_keeps_the_device_busy_is_healthy() -> None:
    work = eager_work(step_ms=50.0, busy_ms=49.0, kernels=300)
    assert judge(evidence(window(traced=work))).verdict == "healthy"


def test_work_that_only_the_profiler_made_host_bound_is_no_alarm() -> None:
    """M23: two streams of device-bound work, 4.08 ms traced and 3.06 ms without the profiler."""
    work = replace(eager_work(step_ms=4.08, busy_ms=2.9, kernels=300), cpu_ops=8 * 300 * 2, python_calls=0)
    assert judge(evidence(window(traced=work))).severity in ("none", "info")


def test_one_persistent_kernel_is_not_called_disabled() -> None:
    work = eager_work(step_ms=5.0, busy_ms=2.0, kernels=2)
    assert judge(evidence(window(traced=work))).verdict == "healthy"


def test_full_replay_is_healthy() -> None:
    judgement = judge(evidence(window(traced=replayed_work())))
    assert (judgement.verdict, judgement.severity) == ("healthy", "none")


def test_stamps_without_gaps_are_no_evidence() -> None:
    work = replace(eager_work(), method="roctracer", gaps_are_evidence=False)
    judgement = judge(evidence(window(traced=work)))
    assert judgement.verdict == "blind"


def test_few_traced_steps_of_a_live_workload_warm_up_and_of_a_recording_are_judged() -> None:
    work = window(traced=eager_work(steps=2))
    assert judge(evidence(work)).verdict == "warming_up"
    assert judge(evidence(work, is_recording=True)).verdict == "finding"


def test_graphs_that_hold_little_of_the_work_are_partial_coverage() -> None:
    work = replace(eager_work(), graph_launches=8, graph_kernels=160, eager_kernels=7040, total_graph_kernels=160)
    judgement = judge(evidence(window(traced=work)))
    assert _detectors(judgement) == {"partial_coverage"}
    assert "2.2 %" in _finding(judgement, "partial_coverage").title


def test_sampling_around_a_full_replay_is_not_partial_coverage() -> None:
    """transformers' generate with a static cache: one replay a token, 27 % of the kernels are sampling around it."""
    work = replace(
        replayed_work(step_ms=2.7, busy_ms=0.9, kernels=340),
        method="cupti",
        graph_kernels=8 * 250,
        eager_kernels=8 * 90,
        total_graph_kernels=8 * 250,
        launches=8 * 90,
    )
    judgement = judge(evidence(window(traced=work, dispatch=Dispatch(steps={"full": 500}, replays=500))))
    assert "partial_coverage" not in {f.detector for f in judgement.findings}
    assert _finding(judgement, "replay_gap").severity in ("info", "warn")


def test_eager_by_configuration_without_a_trace_is_information_with_the_intent() -> None:
    config = EngineConfig(engine="vllm", graphs_enabled=False, enforced_by="--enforce-eager", resolved_mode="NONE")
    judgement = judge(evidence(window(origin="log"), config=config))
    found = _finding(judgement, "disabled")
    assert judgement.severity == "info"
    assert "--enforce-eager" in found.causes[0].text
    assert {v.voter: v.ballot for v in found.votes}["intent"] == "against"


def _eager_steps(*, phase: Phase | None = None, role: str | None = None, **fallbacks: int) -> Judgement:
    """500 eager steps of a process that has graphs, and why they ran eager."""
    made = window(
        dispatch=Dispatch(steps={"eager": 500}, fallbacks=dict(fallbacks)), workload=Workload(pod="a", phase=phase)
    )
    return judge(evidence(made, config=EngineConfig(engine="vllm", graphs_enabled=True, role=role)))


def test_mixed_batches_that_are_eager_by_design_are_no_fault() -> None:
    assert "disabled" not in _detectors(_eager_steps(phase="mixed", prefill_by_design=500))
    assert "disabled" not in _detectors(_eager_steps(phase="mixed", prefill_by_design=490, mode_none=10))
    assert "disabled" in _detectors(_eager_steps(phase="mixed", prefill_by_design=100, forced_eager=400))
    assert "disabled" in _detectors(_eager_steps(forced_eager=500))


@pytest.mark.parametrize("role", ["prefill", "kv_producer"])
def test_a_process_that_only_fills_caches_is_eager_by_design(role: str) -> None:
    assert "disabled" not in _detectors(_eager_steps(phase="mixed", role=role, mode_none=500))
    assert "disabled" not in _detectors(_eager_steps(role=role, mode_none=500))
    assert "disabled" in _detectors(_eager_steps(role="decode", mode_none=500))


def test_a_role_hides_nothing_that_was_measured() -> None:
    config = EngineConfig(engine="vllm", graphs_enabled=True, role="kv_producer")
    made = window(traced=eager_work(), dispatch=Dispatch(steps={"eager": 500}))
    assert _finding(judge(evidence(made, config=config)), "disabled").severity == "page"


def test_a_draft_model_that_runs_eager_is_told_without_the_targets_sizes() -> None:
    drafts = window(
        dispatch=Dispatch(steps={"eager": 800}, fallbacks={"mode_none": 800}, batch_sizes={8: 800}),
        timing=Timing(step_by_mode={"eager": Histogram.of([MS] * 800)}),
        workload=Workload(pod="a", component="draft"),
    )
    config = EngineConfig(engine="vllm", graphs_enabled=True, weight_bytes=16_000_000_000, layers=32)
    made = replace(evidence(drafts, config=config), fingerprint=Fingerprint(gpu_model="NVIDIA H200"))
    assert _finding(judge(made), "disabled").severity == "info"


def test_a_downgrade_names_both_modes_and_the_reason() -> None:
    config = EngineConfig(
        engine="vllm",
        requested_mode="FULL_AND_PIECEWISE",
        resolved_mode="PIECEWISE",
        mode_reason="spec-decode with FlashInfer",
    )
    found = _finding(judge(evidence(window(origin="log"), config=config)), "downgrade")
    assert "FULL_AND_PIECEWISE" in found.title
    assert "spec-decode with FlashInfer" in found.title
    assert found.severity == "info"


def test_the_mode_that_was_asked_for_vouches_for_health() -> None:
    config = EngineConfig(engine="vllm", requested_mode="FULL", resolved_mode="FULL_AND_PIECEWISE")
    assert judge(evidence(window(origin="log"), config=config, is_recording=True)).verdict == "healthy"


def test_a_live_workload_that_sent_only_its_configuration_is_not_called_healthy() -> None:
    config = EngineConfig(engine="vllm", requested_mode="FULL", resolved_mode="FULL")
    assert judge(evidence(window(), config=config)).verdict == "blind"


def _past_ceiling(share: float, *, eager_ms: float = 15.2, full_ms: float = 3.4) -> Judgement:
    """M15: ceiling 32, batch 48, 15.2 instead of 4.2 ms a token."""
    eager = int(1000 * share)
    timing = Timing(
        step_by_mode={
            "eager": Histogram.of([int(eager_ms * MS)] * eager),
            "full": Histogram.of([int(full_ms * MS)] * (1000 - eager)),
        }
    )
    dispatch = Dispatch(
        steps={"eager": eager, "full": 1000 - eager},
        batch_sizes={48: eager, 8: 1000 - eager},
        eager_batch_sizes={48: eager},
        fallbacks={"above_ceiling": eager},
        replays=1000 - eager,
    )
    config = EngineConfig(engine="sglang", capture_sizes=(1, 2, 4, 8, 16, 32), max_batch_size=4096)
    return judge(evidence(window(dispatch=dispatch, timing=timing), config=config))


def test_batches_that_stay_past_the_ceiling_are_a_page() -> None:
    judgement = _past_ceiling(0.8)
    found = _finding(judgement, "overflow")
    assert found.severity == "page"
    assert "does not come back" in found.title
    assert found.estimate is not None
    assert found.estimate.low < 0.72 < found.estimate.high + 0.06
    assert "--cuda-graph-bs-decode 1 2 4 8 16 32 48" in (found.remedy or "")


def test_a_peak_past_the_ceiling_weighs_by_its_time() -> None:
    assert _finding(_past_ceiling(0.02), "overflow").severity in ("info", "warn")
    assert "overflow" not in _detectors(_past_ceiling(0.001))


def test_admission_above_the_ceiling_is_told_before_any_traffic() -> None:
    config = EngineConfig(engine="sglang", resolved_mode="full", capture_sizes=(1, 32), max_batch_size=4096)
    judgement = judge(evidence(window(origin="log"), config=config, is_recording=True))
    found = _finding(judgement, "overflow")
    assert not found.is_fault
    assert "4096" in found.title
    assert judgement.verdict == "healthy"


def test_padding_over_a_quarter_is_told_and_over_two_fifths_warned() -> None:
    def verdict(real: int) -> Judgement:
        counts = Dispatch(steps={"full": 100}, real_tokens=real, padded_tokens=1600)
        return judge(evidence(window(dispatch=counts)))

    assert _finding(verdict(1100), "padding").severity == "info"
    assert _finding(verdict(900), "padding").severity == "warn"
    assert "padding" not in _detectors(verdict(1400))


def test_padding_is_counted_from_batches_and_ladder_when_nothing_else_tells() -> None:
    config = EngineConfig(engine="vllm", capture_sizes=(8, 16, 32))
    counts = Dispatch(steps={"full": 100}, batch_sizes={9: 100})
    found = _finding(judge(evidence(window(dispatch=counts), config=config)), "padding")
    assert any(e.name == "padding share" and e.value == pytest.approx(7 / 16, abs=1e-3) for e in found.evidence)


def test_replays_slower_than_eager_are_harmful() -> None:
    timing = Timing(step_by_mode={"eager": Histogram.of([70_000] * 100), "full": Histogram.of([95_000] * 300)})
    judgement = judge(evidence(window(dispatch=Dispatch(steps={"full": 300, "eager": 100}), timing=timing)))
    assert _finding(judgement, "harmful").severity in ("warn", "page")


def test_copies_into_static_inputs_are_judged_by_their_share_of_the_step() -> None:
    work = replace(replayed_work(), input_copies=112, input_copy_ns=8 * 1 * MS, input_copy_bytes=1 << 30)
    assert _finding(judge(evidence(window(traced=work))), "copy_bound").severity == "page"
    few = replace(replayed_work(), input_copies=8, input_copy_ns=8 * 3000)
    assert "copy_bound" not in _detectors(judge(evidence(window(traced=few))))


def _with_planning(ms: float) -> Judgement:
    work = replace(replayed_work(step_ms=3.3 + ms), host_fixed_ns=int(8 * ms * MS), sync_ns=8 * 3 * MS)
    return judge(evidence(window(traced=work)))


def test_idle_between_replays_is_a_warning_when_most_of_the_step_is_idle() -> None:
    judgement = _with_planning(6.0)
    found = _finding(judgement, "replay_gap")
    assert found.severity == "warn"
    assert "plans the next step" in found.causes[0].text
    assert judgement.estimate is not None
    assert judgement.estimate.ratio < 0.05


def test_a_third_of_idle_behind_a_scheduler_is_information() -> None:
    judgement = _with_planning(1.5)
    assert (judgement.verdict, judgement.severity) == ("healthy", "info")
    assert not _finding(judgement, "replay_gap").is_fault


def test_a_host_that_waits_for_its_input_is_named_as_another_cause() -> None:
    work = replace(replayed_work(step_ms=8.0), host_stall_ns=8 * 5 * MS)
    judgement = judge(evidence(window(traced=work)))
    found = _finding(judgement, "replay_gap")
    assert (judgement.verdict, found.is_fault) == ("healthy", False)
    assert "data loader" in found.causes[0].text


def test_captures_that_go_on_are_thrash_by_the_time_they_take() -> None:
    def verdict(captures: int) -> Judgement:
        timing = Timing(capture=Histogram.of([400 * MS] * captures))
        counts = Dispatch(captures={"ok": captures}, replays=1000, steps={"full": 1000})
        return judge(evidence(window(dispatch=counts, timing=timing)))

    assert _finding(verdict(60), "thrash").severity == "page"
    assert "thrash" not in _detectors(verdict(3))


def test_a_repetition_shorter_than_a_step_is_judged_by_how_it_waits() -> None:
    def stretch(us_a_launch: float, busy_us: float) -> Judgement:
        steps, ns = 3000, int(3000 * 2 * us_a_launch * 1000)
        work = TracedWork(
            method="cupti", steps=steps, span_ns=ns, span_sq_ns2=ns * ns / steps, busy_ns=int(steps * busy_us * 1000),
            eager_kernels=2 * steps, chain_kernels=2 * steps, launches=2 * steps, total_kernels=2 * steps,
            total_span_ns=ns, total_busy_ns=int(steps * busy_us * 1000),
        )  # fmt: skip
        return judge(evidence(window(traced=work)))

    assert _finding(stretch(12.4, 4.2), "disabled").severity == "page"
    assert "disabled" not in _detectors(stretch(12.4, 24.0))
    assert "disabled" not in _detectors(stretch(400.0, 4.2))


@pytest.mark.parametrize("is_recording", [False, True])
def test_a_ladder_captured_once_is_no_thrash_however_long_it_took(is_recording: bool) -> None:
    def verdict(**more: Any) -> Judgement:
        counts = Dispatch(**{"captures": {"ok": 19}, "replays": 900, "steps": {"full": 900}, "live_graphs": 19, **more})
        one = window(dispatch=counts, timing=Timing(capture=Histogram.of([632 * MS] * 19)))
        return judge(evidence(one, is_recording=is_recording))

    assert "thrash" not in _detectors(verdict())
    for recapturing in ({"live_graphs": 3}, {"destroys": 16}, {"live_graphs": None}, {"steps": {"full": 60}}):
        assert _finding(verdict(**recapturing), "thrash").severity == "page"


def test_a_skip_said_36_times_is_one_finding_with_a_count() -> None:
    seen = (Observation("inductor_skip", "mutated inputs (36 instances)", 36),)
    judgement = judge(evidence(window(origin="log", observed=seen)))
    skipped = [f for f in judgement.findings if f.detector == "skipped"]
    assert len(skipped) == 1
    assert "36 times" in skipped[0].title


def test_a_start_that_died_at_capture_is_a_page_and_never_healthy() -> None:
    seen = (Observation("out_of_memory", "CUDA out of memory during capture"), Observation("process_died", "died"))
    judgement = judge(evidence(window(origin="log", observed=seen), is_recording=True))
    assert (judgement.verdict, judgement.severity) == ("finding", "page")
    assert "memory" in (_finding(judgement, "capture_failed").remedy or "")


def test_graphs_captured_and_never_replayed_are_a_fault_of_their_part() -> None:
    counts = Dispatch(captures={"ok": 8}, replays=0, steps={"eager": 500})
    work = window(dispatch=counts, workload=Workload(pod="a", component="draft"))
    assert "unused_graphs" in _detectors(judge(evidence(work)))


def test_failing_graph_calls_and_a_replay_that_never_ends_are_pages() -> None:
    calls = judge(evidence(window(dispatch=Dispatch(failed_calls={"cudaErrorIllegalAddress": 7}))))
    assert _finding(calls, "failing_calls").severity == "page"
    stuck = judge(evidence(window(observed=(Observation("replay_stuck", "graph 3 for 31 s"),))))
    assert _finding(stuck, "replay_stuck").severity == "page"


def test_slow_capture_and_wrong_memory_estimates_are_information_only() -> None:
    timing = Timing(capture=Histogram.of([216 * SECOND]))
    memory = GraphMemory(pool_bytes=5 << 30, estimated_bytes=1 << 30)
    config = EngineConfig(engine="sglang", resolved_mode="full")
    judgement = judge(evidence(window(origin="log", timing=timing, memory=memory), config=config, is_recording=True))
    assert judgement.verdict == "healthy"
    assert judgement.severity == "info"
    assert {f.detector for f in judgement.findings} == {"slow_capture", "graph_memory_estimate"}
