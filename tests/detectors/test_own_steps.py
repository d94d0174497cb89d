"""A process that replayed its steps before and runs them eager now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detectors.made import MS, evidence, replayed_work, window
from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.window import Dispatch, Timing
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.disabled import Disabled
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.own_steps import estimate_by_own_steps
from replaywatch.detectors.readings import traced


def _steps(step_ms: float, count: int = 400) -> Histogram:
    builder = HistogramBuilder()
    builder.add(int(step_ms * MS), count)
    return builder.build()


def lost(full_batch: int = 8, eager_batch: int = 8, eager_steps: int = 400) -> Evidence:
    """Replays of 2 ms before, eager steps of 8 ms now; kernels were traced before only."""
    now = window(
        dispatch=Dispatch(steps={"eager": eager_steps}, batch_sizes={eager_batch: eager_steps},
                          eager_batch_sizes={eager_batch: eager_steps}),
        timing=Timing(step_by_mode={"eager": _steps(8.0, eager_steps)}),
    )  # fmt: skip
    batches = {full_batch: 2000, eager_batch: 2400 if full_batch == eager_batch else 400}
    before = window(
        seconds=600,
        dispatch=Dispatch(steps={"full": 2000, "eager": 400}, batch_sizes=batches,
                          eager_batch_sizes={eager_batch: 400}),
        timing=Timing(step_by_mode={"full": _steps(2.0, 2000), "eager": _steps(8.0)}),
        traced=replayed_work(),
    )  # fmt: skip
    return replace(evidence(now), lifetime=before)


def test_kernels_that_were_traced_before_the_graphs_were_lost_say_nothing_of_now() -> None:
    assert traced(lost()) is None
    verdict = Disabled().judge(lost())
    assert type(verdict).__name__ == "Finding"
    assert verdict.severity == "page"  # type: ignore[union-attr]


def test_a_share_that_stayed_lets_the_lifetimes_kernels_speak() -> None:
    same = lost()
    steady = replace(same.recent, dispatch=Dispatch(steps={"full": 300, "eager": 60}), timing=Timing())
    assert traced(replace(same, recent=steady)) is same.lifetime.traced


def test_the_cost_is_what_the_process_itself_ran_before() -> None:
    found = estimate_by_own_steps(lost())
    assert found is not None
    assert found.ratio == pytest.approx(0.75, abs=0.02)
    assert found.low < 0.75 < found.high


@pytest.mark.parametrize("other", [{"full_batch": 2}, {"eager_batch": 32}, {"eager_steps": 20}])
def test_other_loads_and_few_steps_are_not_compared(other: dict[str, int]) -> None:
    assert estimate_by_own_steps(lost(**other)) is None


def test_kernels_of_other_steps_are_not_estimated_from() -> None:
    assert estimate_recoverable(lost()) is None  # and no sizes are known either
