"""What is remembered of a workload is what adding up all of its windows gives, in whatever ticks they come."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.windows import WINDOW
from replaywatch.collector.memory import HOUR_NS, KEPT_KEYS, SEGMENTS, SOME, TOO_MANY_LATE, WorkloadMemory, bounded
from replaywatch.contract.window import Dispatch, GraphMemory, Window, Workload, merge_windows

WHO = Workload(pod="a")
HORIZON_NS = 120 * 10**9
WIDTH_NS = HORIZON_NS // SEGMENTS


@st.composite
def ticks(draw: st.DrawFn) -> list[list[Window]]:
    """Windows of some seconds, mostly one after another, a few late; across the end of an hour; a few a tick."""
    end_ns, made = HOUR_NS - draw(st.integers(0, 300)) * 10**9, []
    for window in draw(st.lists(WINDOW, min_size=1, max_size=40)):
        end_ns += draw(st.integers(1, 20)) * 10**9
        late_ns = draw(st.sampled_from([0, 0, 0, 0, 7, 40, 200])) * 10**9
        ended_ns = end_ns - late_ns + len(made)
        made.append(
            replace(
                window,
                workload=WHO,
                start_ns=ended_ns - 5 * 10**9,
                end_ns=ended_ns,
                traced=None,
                # Known in every window: a gauge that only a late one knows is lost, and may be.
                memory=GraphMemory(pool_bytes=ended_ns),
                dispatch=replace(window.dispatch, live_graphs=ended_ns),
            )
        )
    cuts = sorted(draw(st.sets(st.integers(1, len(made)), max_size=len(made))) | {len(made)})
    return [made[a:b] for a, b in zip([0, *cuts], cuts, strict=False) if made[a:b]]


def together(windows: list[Window]) -> Window:
    return reduce(merge_windows, sorted(windows, key=lambda w: w.end_ns))


def same_sums(a: Window | None, b: Window) -> bool:
    """Equal but for the order in which observations and blind spots are told."""
    assert a is not None
    return (a.dispatch, a.timing, a.cost, a.memory, a.start_ns, a.end_ns) == (
        b.dispatch, b.timing, b.cost, b.memory, b.start_ns, b.end_ns
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(ticks())
def test_recent_lifetime_and_hours_are_the_sums_of_their_windows(given_ticks: list[list[Window]]) -> None:
    memory, came = WorkloadMemory("a", WHO, 0, 0), list[Window]()
    for serial, windows in enumerate(given_ticks):
        for window in windows:
            memory.absorb(window, window.end_ns, serial)
        memory.settle(HORIZON_NS)
        came += windows
        newest = max(w.end_ns for w in came) // WIDTH_NS
        assert same_sums(memory.recent, together([w for w in came if w.end_ns // WIDTH_NS > newest - SEGMENTS]))
        assert memory.lifetime is not None
        assert memory.lifetime.dispatch.steps == together(came).dispatch.steps
    hours = {w.end_ns // HOUR_NS for w in came}
    assert memory.hours.keys() == hours
    for hour, (total, count) in memory.hours.items():
        own = [w for w in came if w.end_ns // HOUR_NS == hour]
        assert count == len(own)
        assert same_sums(total, together(own))
    memory.forget_hours()
    assert memory.hours == {}


def test_windows_that_wait_for_their_hour_are_few() -> None:
    memory = WorkloadMemory("a", WHO, 0, 0)
    for i in range(10 * SOME):
        memory.absorb(Window(workload=WHO, start_ns=i, end_ns=i + 1, origin="probe"), i, i)
        memory.settle(HORIZON_NS)
        assert all(len(totals) <= SOME for totals, _ in memory._hours.values())
        assert all(len(parts) <= 10 * SOME for parts in memory._segments.values())


@pytest.mark.parametrize("name", [f.name for f in fields(Dispatch) if "Mapping" in str(f.type)])
def test_no_count_by_key_grows_without_end(name: str) -> None:
    key = int if "sizes" in name else str
    counts = {key(n): n for n in range(2 * KEPT_KEYS)}
    window = replace(_steady(HOUR_NS, 1), dispatch=Dispatch(**{name: counts}))  # type: ignore[arg-type]
    kept = getattr(bounded(window).dispatch, name)
    assert kept == {key(n): n for n in range(KEPT_KEYS, 2 * KEPT_KEYS)}


def _steady(end_ns: int, replays: int) -> Window:
    return Window(
        workload=WHO, start_ns=end_ns - 5 * 10**9, end_ns=end_ns, origin="probe", dispatch=Dispatch(replays=replays)
    )


def test_a_clock_that_went_back_does_not_leave_a_workload_in_the_future() -> None:
    memory, now_ns = WorkloadMemory("a", WHO, 0, 0), HOUR_NS
    memory.absorb(_steady(now_ns + HOUR_NS, 1000), now_ns, 1)  # a moment in which the clock was an hour ahead
    memory.settle(HORIZON_NS)
    for at in range(TOO_MANY_LATE + 10):
        memory.absorb(_steady(now_ns + at * 5 * 10**9, 1), now_ns, at + 2)
        memory.settle(HORIZON_NS)
        if at == TOO_MANY_LATE // 2:
            assert memory.recent is not None
            assert memory.recent.dispatch.replays == 1000
    assert memory.recent is not None
    assert memory.recent.dispatch.replays is not None
    assert memory.recent.dispatch.replays < 30
    assert memory.recent.end_ns < now_ns + HOUR_NS


def test_a_few_windows_that_come_too_late_leave_the_recent_past_alone() -> None:
    memory, now_ns = WorkloadMemory("a", WHO, 0, 0), HOUR_NS
    for at in range(3 * TOO_MANY_LATE):
        end_ns = now_ns + at * 5 * 10**9 - (HORIZON_NS * 2 if at % 20 > 2 else 0)
        memory.absorb(_steady(end_ns, 1), now_ns, at + 1)
        memory.settle(HORIZON_NS)
    assert memory.recent is not None
    assert memory.recent.end_ns >= now_ns + (3 * TOO_MANY_LATE - 20) * 5 * 10**9
