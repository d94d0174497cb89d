"""Steps that the probe timed itself take the place of a traced step from which the tracer's cost was guessed."""

from __future__ import annotations

import pytest

from detectors.made import MS, eager_work, evidence, window
from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.verdict import Estimate
from replaywatch.contract.window import Origin, Timing
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.figures import spread_of

# 900 launches of 3 us traced at 12 ms a step: what the profiler added is about half of it.
WORK = eager_work(steps=8, step_ms=12.0, busy_ms=2.7)


def steps_of(step_ms: float, count: int = 4000) -> Histogram:
    builder = HistogramBuilder()
    builder.add(int(step_ms * MS), count)
    return builder.build()


def estimate_of(periods: Histogram | None, origin: Origin = "probe", *, by_mode: bool = False) -> Estimate:
    timing = Timing(step_by_mode={"eager": periods}) if by_mode and periods else Timing(step_period=periods)
    found = estimate_recoverable(evidence(window(traced=WORK, timing=timing, origin=origin)))
    assert found is not None
    return found


@pytest.mark.parametrize("by_mode", [False, True])
@pytest.mark.parametrize("step_ms", [6.0, 8.0])
def test_the_observed_step_is_the_timed_one_and_the_interval_narrows(step_ms: float, by_mode: bool) -> None:
    guessed, timed = estimate_of(None), estimate_of(steps_of(step_ms), by_mode=by_mode)
    assert timed.step_us == pytest.approx(1000 * step_ms)
    assert timed.ratio == pytest.approx(1 - (timed.graph_step_us or 0) / (1000 * step_ms))
    assert timed.high - timed.low < 0.6 * (guessed.high - guessed.low)


def test_steps_of_another_length_than_the_traced_ones_are_not_theirs() -> None:
    for step_ms in (3.0, 14.0, 120.0):
        assert estimate_of(steps_of(step_ms)) == estimate_of(None)


def test_steps_timed_in_a_file_or_hardly_more_than_were_traced_carry_the_tracers_cost() -> None:
    assert estimate_of(steps_of(8.0), "trace") == estimate_of(None, "trace")
    assert estimate_of(steps_of(8.0, count=20)) == estimate_of(None)


def test_steps_that_differ_widen_the_interval() -> None:
    mixed = steps_of(7.0, 2000).merge(steps_of(9.0, 2000))
    alike, different = estimate_of(steps_of(8.0)), estimate_of(mixed)
    assert different.ratio == pytest.approx(alike.ratio, abs=0.01)
    assert different.low < alike.low - 0.02


def test_the_spread_is_that_of_steps_without_their_pauses() -> None:
    assert spread_of(steps_of(8.0)) == 0
    assert spread_of(steps_of(8.0).merge(steps_of(400.0, 40))) == 0
    assert spread_of(steps_of(6.0).merge(steps_of(10.0))) == pytest.approx(0.25, abs=0.03)
