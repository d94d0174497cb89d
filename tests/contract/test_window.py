"""Windows merge exactly, and what was not measured stays None."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from contract.windows import WINDOW
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.merging import merge_records
from replaywatch.contract.window import Dispatch, Timing, TracedWork, Window, Workload, merge_all, merge_windows

EMPTY = Window(workload=Workload(pod="a"), start_ns=5, end_ns=6, origin="probe")


@given(WINDOW)
def test_merging_with_an_empty_window_changes_no_measurement(window: Window) -> None:
    merged = merge_windows(EMPTY, window)
    assert merged.dispatch == window.dispatch
    assert merged.timing == window.timing
    assert merged.traced == window.traced


@given(WINDOW, WINDOW, WINDOW)
def test_merging_is_associative(a: Window, b: Window, c: Window) -> None:
    left, right = merge_windows(merge_windows(a, b), c), merge_windows(a, merge_windows(b, c))
    assert left.dispatch == right.dispatch
    assert left.timing == right.timing
    assert (left.start_ns, left.end_ns) == (right.start_ns, right.end_ns)
    assert {(o.detail, o.count) for o in left.observations} == {(o.detail, o.count) for o in right.observations}


@given(st.lists(WINDOW, min_size=1, max_size=6))
def test_many_merge_at_once_as_they_do_one_by_one(windows: list[Window]) -> None:
    assert merge_all(windows) == reduce(merge_windows, windows)


def test_counts_add_and_gauges_take_the_later_value() -> None:
    a = Dispatch(steps={"full": 2}, replays=3, live_graphs=7)
    b = Dispatch(steps={"full": 1, "eager": 4}, live_graphs=5)
    assert merge_records(a, b) == Dispatch(steps={"full": 3, "eager": 4}, replays=3, live_graphs=5)


def test_coverage_of_nothing_is_none_not_zero() -> None:
    assert TracedWork().coverage is None
    assert TracedWork().busy_ratio is None
    assert EMPTY.steps is None


def test_equal_workloads_have_equal_keys_and_others_differ() -> None:
    assert Workload(pod="a", rank=1).key == Workload(pod="a", rank=1).key
    assert Workload(pod="a", rank=1).key != Workload(pod="a", rank=2).key
    assert Workload(pod="a").key != Workload(container="a").key


def test_steps_are_those_of_all_modes_where_nothing_else_timed_them() -> None:
    replayed, eager = Histogram.of([2_000] * 3), Histogram.of([14_000])
    assert Timing().steps is None
    assert Timing(step_by_mode={"full": replayed, "eager": eager}).steps == Histogram.of([2_000] * 3 + [14_000])
    assert Timing(step_period=replayed, step_by_mode={"eager": eager}).steps == replayed
