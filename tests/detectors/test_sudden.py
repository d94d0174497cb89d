"""Sudden faults are found within ten seconds of windows, at equal load, with what changed; swings stay silent."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from math import sin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.windows import WINDOW
from detectors.live import DEVICE, LENGTH_S, SECOND, Fault, Moment, slower, stream
from replaywatch.contract.verdict import Finding, Healthy, Verdict, WarmingUp
from replaywatch.contract.window import Observation, Window
from replaywatch.contract.wire import decode_record, jsonable
from replaywatch.detectors.channels import CHANNELS
from replaywatch.detectors.evidence import Evidence, gather
from replaywatch.detectors.levels import MAX_LEVELS, WARM_WINDOWS, expect, learn
from replaywatch.detectors.outliers import FIT_WINDOWS, JointMemory, advance_joint
from replaywatch.detectors.shifts import ACCEPTED_WINDOWS
from replaywatch.detectors.sudden import Sudden
from replaywatch.detectors.sudden_state import SuddenState, advance

CALM_S = 3600.0


def verdict_on(state: SuddenState, window: Window) -> Verdict:
    return Sudden().judge(Evidence(workload=window.workload, recent=window, lifetime=window, sudden=state))


def verdicts(windows: Iterable[Window]) -> list[Verdict]:
    state, found = SuddenState(), []
    for window in windows:
        state = advance(state, window)
        found.append(verdict_on(state, window))
    return found


def first_finding(fault: Fault, seed: int = 1, *, after_s: float = 60.0) -> tuple[float, Finding] | None:
    """Seconds from the fault's start to the first finding of a fault, and the finding."""
    told = verdicts(stream(CALM_S + after_s, seed, faults={CALM_S: fault}))
    calm = int(CALM_S / LENGTH_S)
    for i, verdict in enumerate(told[calm:]):
        if isinstance(verdict, Finding) and verdict.is_fault:
            return (i + 1) * LENGTH_S, verdict
    return None


def stopped(moment: Moment) -> Moment:
    """Two seconds of every five without a step, as SIGSTOP and SIGCONT make them."""
    return replace(moment, pause_ratio=0.45)


def contended(moment: Moment) -> Moment:
    return replace(
        moment, step_ms=moment.step_ms * 1.4, replay_ms=moment.replay_ms * 1.45, device=replace(DEVICE, processes=2)
    )


def throttled(moment: Moment) -> Moment:
    device = replace(DEVICE, sm_clock_hz=1_300_000_000, throttle_reasons=("thermal",))
    return replace(slower(1.4)(moment), device=device)


def disabled(moment: Moment) -> Moment:
    return replace(moment, step_ms=moment.step_ms * 3.5, eager_ratio=1.0, config_id="c2")


def fallen(moment: Moment) -> Moment:
    """The cache of graphs is full: from now on most batches run eager."""
    return replace(moment, step_ms=moment.step_ms * 2, eager_ratio=0.7, reason="no_matching_graph")


def busy_host(moment: Moment) -> Moment:
    return replace(moment, step_ms=moment.step_ms + 1.5, gap_us=1400.0, launch_us=70.0)


def recording(moment: Moment) -> Moment:
    return replace(moment, step_ms=moment.step_ms * 1.5, captures=30)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (stopped, None),
        (contended, "another process computes on the device"),
        (throttled, "the device's clock fell"),
        (disabled, "the engine's configuration changed"),
        (fallen, "steps fall back: no matching graph"),
        (busy_host, "the host became slower"),
        (recording, "graphs are captured"),
    ],
)
def test_a_fault_is_found_within_ten_seconds_with_what_changed(fault: Fault, cause: str | None) -> None:
    for seed in range(3):
        found = first_finding(fault, seed)
        assert found is not None
        seconds, finding = found
        assert seconds <= 10
        assert finding.estimate is not None
        assert finding.estimate.low <= finding.estimate.ratio <= finding.estimate.high
        if cause is not None:
            assert any(c.text.startswith(cause) for c in finding.causes)


def wild(second: float, _rng: random.Random) -> float:
    """A load that runs through four octaves every few minutes, so that none is seen often."""
    return 2.0 ** (2.0 + 2.0 * sin(second / 40))


@pytest.mark.parametrize("seed", range(3))
def test_a_large_fault_is_found_before_any_load_was_seen_often(seed: int) -> None:
    fault_s = 170.0
    told, state = [], SuddenState()
    for window in stream(fault_s + 60, seed, batch=wild, faults={fault_s: slower(2.0)}, noise=0.03):
        state = advance(state, window)
        told.append(verdict_on(state, window))
    step = next(c for c in state.channels if c.name == "step_us")
    assert not any(level.is_warm for level in step.levels)
    calm = int(fault_s / LENGTH_S)
    assert not any(isinstance(v, Finding) for v in told[:calm])
    assert any(isinstance(v, Finding) and v.severity == "page" for v in told[calm : calm + 3])


@pytest.mark.parametrize("seed", range(4))
def test_a_step_1_15_times_as_long_is_a_warning_within_a_minute_and_a_half(seed: int) -> None:
    told = verdicts(stream(2 * CALM_S + 90.0, seed, faults={2 * CALM_S: slower(1.15)}, noise=0.017))
    calm = int(2 * CALM_S / LENGTH_S)
    assert not any(isinstance(v, Finding) for v in told[:calm])
    assert any(isinstance(v, Finding) and v.severity == "warn" for v in told[calm:])


def test_the_lost_share_is_that_of_the_fault() -> None:
    found = first_finding(slower(1.5))
    assert found is not None
    assert found[1].estimate is not None
    assert found[1].estimate.low <= 1 - 1 / 1.5 <= found[1].estimate.high
    assert found[1].severity == "page"
    assert not found[1].estimate.is_recoverable


def test_a_loss_of_graphs_is_recoverable() -> None:
    found = first_finding(disabled)
    assert found is not None
    assert found[1].estimate is not None
    assert found[1].estimate.is_recoverable


def test_a_process_that_did_not_report_is_told() -> None:
    def silent(moment: Moment) -> Moment:
        return replace(moment, length_s=40.0, pause_ratio=0.9)

    windows = list(stream(CALM_S, 1)) + list(stream(40.0, 1, faults={0.0: silent}, start_s=CALM_S))
    last = verdicts(windows)[-1]
    assert isinstance(last, Finding)
    assert last.severity == "warn"
    assert "time between two reports of the process, since" in {i.name for i in last.evidence}


def test_swings_of_a_working_day_stay_silent() -> None:
    told = verdicts(stream(8 * 3600, 7, start_s=6 * 3600))
    assert [v for v in told if isinstance(v, Finding) and v.is_fault] == []


def test_a_device_that_is_faster_is_no_fault() -> None:
    assert first_finding(slower(0.5)) is None


def test_one_slow_window_is_told_for_one_window_only() -> None:
    calm = list(stream(CALM_S, 3))
    odd = next(iter(stream(LENGTH_S, 3, faults={0.0: slower(3.0)}, start_s=CALM_S)))
    after = list(stream(60.0, 3, start_s=CALM_S + LENGTH_S))
    told = verdicts([*calm, odd, *after])
    assert sum(isinstance(v, Finding) for v in told[len(calm) :]) <= 1


def test_a_cure_ends_the_finding_within_twenty_seconds() -> None:
    told = verdicts(stream(CALM_S + 240, 2, faults={CALM_S: slower(1.5), CALM_S + 120: slower(1.0)}))
    cured = int((CALM_S + 120) / LENGTH_S)
    assert isinstance(told[cured - 1], Finding)
    assert isinstance(told[cured + 4], Healthy)


def test_what_lasts_an_hour_is_what_is_usual() -> None:
    hours = CALM_S + (ACCEPTED_WINDOWS + 30) * LENGTH_S
    told = verdicts(stream(hours, 4, faults={CALM_S: slower(1.5)}, batch=lambda s, r: 16.0))
    assert isinstance(told[int(CALM_S / LENGTH_S) + 100], Finding)
    assert not isinstance(told[-1], Finding)


def test_it_says_how_much_is_missing_while_it_warms_up() -> None:
    told = verdicts(stream(WARM_WINDOWS * LENGTH_S, 1, batch=lambda s, r: 16.0))
    first = told[0]
    assert isinstance(first, WarmingUp)
    assert "23 more windows" in first.needs
    assert not any(isinstance(v, Finding) for v in told)


def test_a_restart_from_the_stored_state_gives_the_same_verdicts() -> None:
    windows = list(stream(CALM_S + 60, 5, faults={CALM_S: slower(1.6)}))
    cut = len(windows) - 15
    state = reduce(advance, windows[:cut], SuddenState())
    restored = decode_record(SuddenState, json.loads(json.dumps(jsonable(state))))
    assert restored == state
    for window in windows[cut:]:
        state, restored = advance(state, window), advance(restored, window)
        assert verdict_on(state, window) == verdict_on(restored, window)
    assert isinstance(verdict_on(state, windows[-1]), Finding)


def test_a_window_that_comes_late_or_twice_changes_nothing() -> None:
    windows = list(stream(300, 1))
    state = reduce(advance, windows, SuddenState())
    assert advance(state, windows[-1]) is state
    assert advance(state, windows[3]) is state


def test_windows_of_another_witness_are_not_followed_beside_the_probes() -> None:
    windows = list(stream(300, 1))
    state = reduce(advance, windows, SuddenState())
    other = replace(next(iter(stream(LENGTH_S, 2, start_s=300.0))), origin="metrics")
    assert advance(state, other) is state
    assert advance(SuddenState(), other).windows == 1


def test_the_state_does_not_grow_with_time() -> None:
    rng = random.Random(3)
    windows = stream(6 * 3600, 3, batch=lambda s, r: rng.choice([1, 2, 5, 9, 17, 40, 80, 160, 300, 900]))
    sizes = []
    state = SuddenState()
    for i, window in enumerate(windows):
        state = advance(state, window)
        if i % 500 == 499:
            sizes.append(len(json.dumps(jsonable(state))))
    assert max(sizes) < 40_000
    assert sizes[-1] < 1.3 * sizes[len(sizes) // 2]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WINDOW, max_size=12))
def test_any_windows_give_a_state_that_can_be_stored(windows: list[Window]) -> None:
    state = reduce(advance, windows, SuddenState())
    assert decode_record(SuddenState, json.loads(json.dumps(jsonable(state)))) == state
    if windows:
        assert verdict_on(state, windows[0]) is not None


def test_evidence_is_the_same_in_any_order_of_windows() -> None:
    windows = list(stream(600, 2))
    shuffled = random.Random(1).sample(windows, len(windows))
    assert gather(windows).sudden == gather(shuffled).sudden


def test_what_was_observed_at_that_moment_is_a_cause() -> None:
    windows = list(stream(CALM_S + 30, 6, faults={CALM_S: slower(2.0)}))
    seen = Observation("graph_update_failed", "graph update failed: topology changed")
    first = int(CALM_S / LENGTH_S)
    windows[first] = replace(windows[first], observations=(seen,))
    told = verdicts(windows)[-1]
    assert isinstance(told, Finding)
    assert told.causes[0].text == seen.detail


def test_levels_are_bounded_and_follow_their_load() -> None:
    levels: tuple = ()  # type: ignore[type-arg]
    for i in range(4000):
        load = float(2 ** (i % 40))
        levels = learn(levels, load, 100 + load)
    assert len(levels) <= MAX_LEVELS
    held = expect(levels, float(2**39), grows=True)
    assert held is not None
    assert held.low == pytest.approx(100 + 2**39, rel=0.01)


def test_a_value_that_only_grew_with_its_load_does_not_widen_what_is_usual() -> None:
    levels: tuple = ()  # type: ignore[type-arg]
    for i in range(600):
        load = 10.0 + 0.5 * (i % 24)
        usual = expect(levels, load, grows=True)
        known = usual.low if usual is not None and usual.low == usual.high else None
        levels = learn(levels, load, 100 + 10 * load, known)
    held = expect(levels, 15.0, grows=True)
    assert held is not None
    assert held.low == pytest.approx(250, rel=0.02)
    assert held.sigma < 0.04 * held.low


def test_no_level_is_moved_far_by_one_value() -> None:
    levels: tuple = ()  # type: ignore[type-arg]
    for i in range(100):
        levels = learn(levels, 8.0, 100.0 + i % 3)
    moved = learn(levels, 8.0, 1e9)
    assert moved[0].value == pytest.approx(levels[0].value, rel=0.01)


def test_windows_unusual_together_are_told_without_any_single_one_being_odd() -> None:
    """Two residuals that always move together, and then apart."""
    pytest.importorskip("sklearn")
    rng, memory = random.Random(1), JointMemory()
    for _ in range(FIT_WINDOWS):
        common = rng.gauss(0, 1.2)
        residuals = {"step_us": common + rng.gauss(0, 0.1), "replay_us": common + rng.gauss(0, 0.1)}
        memory = advance_joint(memory, residuals, True)
    assert memory.ellipse is not None
    together = advance_joint(memory, {"step_us": 2.0, "replay_us": 2.0}, True)
    assert together.outside == 0
    for _ in range(3):
        memory = advance_joint(memory, {"step_us": 2.4, "replay_us": -2.4}, True)
    assert memory.outside == 3


def test_what_a_fit_needs_is_imported_before_the_first_fit_when_asked() -> None:
    code = (
        "import sys; from replaywatch.detectors.outliers import load_fitting;"
        "before = 'sklearn.covariance' in sys.modules;"
        "load_fitting(); print(before, 'sklearn.covariance' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ)
    assert told.stdout.split() == ["False", "True"]


def test_every_channel_has_words_and_a_least_shift() -> None:
    for kind in CHANNELS:
        assert kind.words
        assert kind.least_gap > 0
    assert len({k.words for k in CHANNELS}) == len(CHANNELS)


def test_time_is_taken_from_windows_alone() -> None:
    late = list(stream(600, 1, start_s=1e6))
    early = list(stream(600, 1))
    a, b = reduce(advance, late, SuddenState()), reduce(advance, early, SuddenState())
    assert a.end_ns - b.end_ns == int(1e6 * SECOND)
    assert a.windows == b.windows
