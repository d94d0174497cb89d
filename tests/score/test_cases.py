"""Every public case, rebuilt, must give what its reporter would have needed to hear."""

from __future__ import annotations

import inspect

from replaywatch.contract.verdict import Finding
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import Judgement, judge
from score import cases


def found(judgement: Judgement, detector: str) -> Finding:
    names = {f.detector for f in judgement.findings}
    assert detector in names, f"{detector} is not among {sorted(names)}"
    return next(f for f in judgement.findings if f.detector == detector)


def faults(judgement: Judgement) -> set[str]:
    return {f.detector for f in judgement.findings if f.is_fault}


def item(finding: Finding, name: str) -> object:
    return next(i.value for i in finding.evidence if i.name == name)


def judged(evidence: list[Evidence]) -> list[Judgement]:
    return [judge(e) for e in evidence]


def test_case_1_every_endpoint_is_told_what_was_asked_and_who_overrode_it() -> None:
    fleet = judged(cases.case_1_forced_by_a_wrapper())
    for judgement in fleet:
        finding = found(judgement, "disabled")
        votes = {v.voter: v for v in finding.votes}
        assert finding.severity == "page"
        assert votes["intent"].ballot == "for"
        said = "FULL_AND_PIECEWISE was asked for, and graphs are off: enforce_eager set by a wrapper"
        assert said in votes["intent"].reason
        assert votes["peers"].ballot == "abstains"
        assert finding.estimate is not None
        assert finding.estimate.saved_us is not None
        assert "odd_one_out" not in {f.detector for f in judgement.findings}
    assert len(fleet) == 12


def test_case_2_each_stage_has_a_verdict_of_its_own() -> None:
    by_stage = {j.workload.component: j for j in judged(cases.case_2_two_stages_eager())}
    assert {stage: j.verdict for stage, j in by_stage.items()} == {
        "thinker": "finding",
        "talker": "finding",
        "code2wav": "healthy",
    }
    assert found(by_stage["talker"], "disabled").estimate is not None


def test_case_3_the_start_warns_of_the_ceiling_and_the_state_that_absorbs_is_a_page() -> None:
    idle, past = judged(cases.case_3_ceiling_that_absorbs())
    lint = found(idle, "overflow")
    assert (lint.severity, lint.is_fault) == ("info", False)
    assert "4096" in lint.title
    overflow = found(past, "overflow")
    assert overflow.severity == "page"
    assert "does not come back" in overflow.title
    assert overflow.estimate is not None
    assert overflow.estimate.high > 0.6


def test_case_4_the_summed_size_is_named() -> None:
    (judgement,) = judged(cases.case_4_ranks_are_summed())
    overflow = found(judgement, "overflow")
    assert overflow.severity == "page"
    assert item(overflow, "largest batch seen") == 400
    assert item(overflow, "largest captured size") == 256
    assert "400" in (overflow.remedy or "")


def test_case_5_the_one_size_its_share_and_the_sizes_to_add_are_told() -> None:
    (judgement,) = judged(cases.case_5_only_the_peak_size())
    overflow = found(judgement, "overflow")
    assert item(overflow, "largest batch seen") == 510
    assert item(overflow, "steps past the ceiling") == 0.06
    assert "510" in (overflow.remedy or "")
    assert overflow.severity in ("warn", "page")


def test_case_6_the_model_whose_graphs_nobody_replays_is_named() -> None:
    draft, target = judged(cases.case_6_draft_never_replayed())
    unused = found(draft, "unused_graphs")
    assert (item(unused, "captures"), item(unused, "replays")) == (51, 0)
    assert draft.workload.component == "draft"
    assert faults(target) == set()


def test_case_7_the_sudden_loss_comes_with_what_changed() -> None:
    (judgement,) = judged(cases.case_7_cache_full())
    sudden = found(judgement, "sudden")
    assert sudden.severity == "page"
    assert sudden.causes[0].text == "steps fall back: no matching graph"
    assert sudden.estimate is not None
    assert sudden.estimate.is_recoverable


def test_case_8_ranks_in_different_modes_are_told_on_both_sides() -> None:
    busy, idle = judged(cases.case_8_idle_rank_eager())
    waiting = found(busy, "fallbacks")
    assert "ranks disagree" in waiting.title
    assert waiting.severity == "page"
    assert "dummy batch" in found(idle, "fallbacks").title


def test_case_9_the_downgrade_has_its_reason_and_the_loss_its_price() -> None:
    (judgement,) = judged(cases.case_9_downgrade())
    assert "FlashInfer" in found(judgement, "downgrade").title
    priced = found(judgement, "partial_coverage")
    assert priced.estimate is not None
    assert judgement.severity == priced.severity == priced.estimate.severity
    assert "fragmented" not in faults(judgement)


def test_case_10_the_reason_of_a_skip_is_told_and_counted() -> None:
    (judgement,) = judged(cases.case_10_skipped_without_a_reason_seen())
    skipped = found(judgement, "skipped")
    assert "cpu device" in skipped.title
    assert "3 times" in skipped.title


def test_case_11_what_is_said_on_every_call_is_one_finding_with_a_count() -> None:
    (judgement,) = judged(cases.case_11_said_on_every_call())
    assert len([f for f in judgement.findings if f.detector == "skipped"]) == 1
    assert "40 times: mutated inputs (36 instances)" in found(judgement, "skipped").title


def test_case_12_recapturing_is_a_page_with_the_cost_of_recording() -> None:
    (judgement,) = judged(cases.case_12_recapture_each_iteration())
    thrash = found(judgement, "thrash")
    assert thrash.severity == "page"
    assert thrash.estimate is not None
    assert thrash.estimate.low > 0.6


def test_case_13_a_failed_capture_and_the_pool_it_kept_are_told() -> None:
    (judgement,) = judged(cases.case_13_failed_capture_keeps_its_pool())
    assert faults(judgement) == {"capture_failed", "idle_pools"}
    pools = found(judgement, "idle_pools")
    assert item(pools, "memory of graphs never replayed") == 1 << 30
    assert "captures failed and kept their pools" in pools.causes[0].text


def test_case_14_launches_are_compared_with_the_version_before() -> None:
    fleet = judged(cases.case_14_launch_slower_after_an_upgrade())
    before, after = fleet[:6], fleet[6:]
    assert {j.verdict for j in before} == {"healthy"}
    for judgement in after:
        slow = found(judgement, "slow_launch")
        assert slow.severity == "warn"
        assert "torch 2.10" in slow.causes[0].text


def test_case_15_idle_between_replays_is_told_though_everything_is_replayed() -> None:
    short, long = judged(cases.case_15_idle_between_replays())
    assert "43 %" in found(short, "replay_gap").title
    assert found(long, "replay_gap").severity == "warn"
    for judgement in (short, long):
        estimate = found(judgement, "replay_gap").estimate
        assert estimate is not None
        assert not estimate.is_recoverable


def test_case_16_padding_is_told_with_the_ladder_that_fits() -> None:
    (judgement,) = judged(cases.case_16_padded_to_the_next_size())
    padding = found(judgement, "padding")
    assert item(padding, "padding share") == 0.4375
    assert "9" in (padding.remedy or "")
    assert "--cudagraph-capture-sizes" in (padding.remedy or "")


def test_case_17_memory_is_compared_with_its_estimate_and_the_dropped_sizes_are_named() -> None:
    (judgement,) = judged(cases.case_17_memory_under_reserved())
    assert "1.95 GiB more" in found(judgement, "graph_memory_estimate").title
    assert "272, 288" in found(judgement, "dropped_sizes").title


def test_case_18_the_slow_capture_is_that_of_the_role() -> None:
    draft, target = judged(cases.case_18_slow_capture_of_a_role())
    assert "63 s" in found(draft, "slow_capture").title
    assert draft.workload.component == "draft"
    assert target.findings == ()


def test_case_19_a_replay_that_never_ends_is_a_page_with_graph_and_time() -> None:
    (judgement,) = judged(cases.case_19_replay_never_ends())
    stuck = found(judgement, "replay_stuck")
    assert stuck.severity == "page"
    assert "0x7f2a" in stuck.title
    assert "41 s" in stuck.title


def test_case_20_failing_launches_are_counted_and_a_page() -> None:
    (judgement,) = judged(cases.case_20_launch_errors_swallowed())
    failing = found(judgement, "failing_calls")
    assert failing.severity == "page"
    assert "268" in failing.title


def test_case_21_gaps_that_the_tracer_cannot_know_give_silence() -> None:
    (judgement,) = judged(cases.case_21_gaps_that_are_none())
    assert judgement.findings == ()


def test_case_22_eager_on_purpose_without_a_loss_gives_silence() -> None:
    (judgement,) = judged(cases.case_22_eager_on_purpose())
    assert (judgement.verdict, judgement.severity) == ("healthy", "none")


def test_case_23_a_foreign_profiler_makes_the_verdict_blind() -> None:
    (judgement,) = judged(cases.case_23_another_profiler())
    assert judgement.verdict == "blind"
    assert faults(judgement) == set()


def test_case_24_a_loss_in_a_process_without_python_is_told_from_its_log() -> None:
    (judgement,) = judged(cases.case_24_llama_cpp_for_ever())
    disabled = found(judgement, "disabled")
    assert any("too many consecutive updates" in c.text for c in disabled.causes)


def test_every_case_has_its_test() -> None:
    built = {name for name in vars(cases) if name.startswith("case_")}
    tested = inspect.getsource(inspect.getmodule(test_every_case_has_its_test))  # type: ignore[arg-type]
    assert len(built) == 24
    assert all(f"cases.{name}()" in tested for name in built)
