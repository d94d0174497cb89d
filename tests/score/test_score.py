"""The page of the score is what the code gives now, and the aims hold that are met."""

from __future__ import annotations

from functools import cache

import pytest

from score import score
from score.measured import DAYS, NAB_FOLDER, OURS, Measured, measure
from score.situation import Count, Situation, count, quantile, total


@cache
def measured() -> Measured:
    return measure()


@pytest.mark.slow
def test_the_page_is_what_the_code_gives_now() -> None:
    """Run `make score` where this fails, and look at what changed."""
    if not NAB_FOLDER.exists():
        pytest.skip("../shared/data/nab is not beside this checkout, and the page tells its score")
    assert score.PAGE.read_text() == score.render(measured())


@pytest.mark.slow
def test_precision_is_what_was_aimed_at_and_no_control_is_paged() -> None:
    counts = total(count(measured().situations))
    assert counts.precision is not None
    assert counts.precision >= 0.98
    controls = [s for s in measured().situations if not s.is_fault]
    assert len(controls) > 1000
    assert [s.name for s in controls if s.judgement.severity == "page"] == []


@pytest.mark.slow
def test_stable_faults_that_lose_much_are_found() -> None:
    sure = [s for s in measured().situations if s.source == "corpus" and s.is_fault and (s.rho or 0.0) >= 0.15]
    assert sum(s.is_found for s in sure) >= 0.95 * len(sure)


@pytest.mark.slow
def test_with_step_times_every_large_stable_fault_alarms_and_no_control_does() -> None:
    timed = [s for s in measured().situations if s.source == "timed"]
    about = [s for s in timed if s.expected & score.ABOUT_CAPTURE and (s.rho or 0.0) >= 0.15]
    assert [s.name for s in about if not s.alarms & s.expected] == []
    assert [s.name for s in timed if s.false_alarms] == []


@pytest.mark.slow
def test_intervals_hold_the_truth_nine_times_in_ten() -> None:
    sure = [s for s in measured().situations if s.source == "timed" and s.judgement.estimate is not None]
    sure = [s for s in sure if s.truth is not None and not s.expected & score.NOT_CAPTURED]
    assert sum(score._covers(s) for s in sure) >= 0.9 * len(sure)


@pytest.mark.slow
def test_healthy_days_open_at_most_one_incident_each() -> None:
    assert max(measured().daily[OURS]) <= 1
    assert len(measured().daily[OURS]) == DAYS


@pytest.mark.slow
def test_strong_sudden_faults_are_all_found_within_ten_seconds() -> None:
    for kind in ("host stopped half of the time", "another process on the device", "graphs switched off"):
        seconds = measured().seconds[OURS, kind]
        assert all(s is not None and s <= 10 for s in seconds), kind


@pytest.mark.slow
def test_sudden_faults_recorded_on_a_gpu_are_found_within_ten_seconds_and_health_is_silent() -> None:
    assert len(measured().live) == 4
    assert [name for name, seconds in measured().live if seconds is None or seconds > 10] == []
    live = [s for s in measured().situations if s.source == "live"]
    assert [s.name for s in live if s.false_alarms] == []


@pytest.mark.slow
def test_every_fleet_is_judged_without_a_false_alarm_and_every_faulty_replica_found() -> None:
    fleet = [s for s in measured().situations if s.source == "fleet"]
    assert [s.name for s in fleet if s.false_alarms] == []
    assert [s.name for s in fleet if s.is_fault and not s.is_found] == []


def test_counts_are_of_what_was_due_and_what_was_said() -> None:
    from replaywatch.contract.verdict import Finding
    from replaywatch.contract.window import Workload
    from replaywatch.detectors.judge import Judgement

    def said(*names: str) -> Judgement:
        findings = tuple(
            Finding(detector=n, subject="x", severity="warn", title="t", evidence=(), is_fault=True) for n in names
        )
        return Judgement(Workload(), "finding", "warn", findings, (), (), (), None)

    some = [
        Situation("a", "case", said("disabled", "padding"), frozenset({"disabled"})),
        Situation("b", "case", said(), frozenset({"disabled"})),
        Situation("c", "case", said("padding"), frozenset(), frozenset({"padding"})),
    ]
    counts = count(some)
    assert (counts["disabled"].tp, counts["disabled"].fn, counts["disabled"].fp) == (1, 1, 0)
    assert counts["padding"].fp == 1
    assert Count(3, 1, 1).precision == Count(3, 1, 1).recall == 0.75
    assert Count().precision is None
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([], 0.5) is None
