"""Step times by mode."""

from replaywatch.contract.histogram import Histogram
from replaywatch.probe.engines.step_clock import StepClock


class Moments:
    def __init__(self):
        self.now_ns = 0
        self.clock = StepClock(lambda: self.now_ns)

    def step(self, after_ms, mode, phase=None, component=None, asked_ms_ago=None):
        self.now_ns += int(after_ms * 1e6)
        asked_ns = 0 if asked_ms_ago is None else self.now_ns - int(asked_ms_ago * 1e6)
        self.clock.step(self.clock.pace(mode, phase, component), asked_ns)

    def means_ms(self):
        return {
            (*place, mode): round(h["s"] / h["n"] / 1e6, 3)
            for place, timing in self.clock.take().items()
            for mode, h in timing["step_by_mode"].items()
        }


def test_time_belongs_to_the_mode_that_ran_before():
    m = Moments()
    for _ in range(5):
        m.step(2, "full")
    for _ in range(5):
        m.step(15, "eager")
    assert m.means_ms() == {(None, None, "full"): 2 + 13 / 4, (None, None, "eager"): 15}


def test_lone_step_of_another_mode_is_not_timed():
    m = Moments()
    for mode in ("full", "full", "full", "eager", "full", "full"):
        m.step(2, mode)
    assert set(m.means_ms()) == {(None, None, "full")}


def test_components_are_timed_apart():
    m = Moments()
    for _ in range(4):
        m.step(1, "full")
        m.step(1, "eager", None, "draft")
    assert m.means_ms() == {(None, None, "full"): 2, ("draft", None, "eager"): 2}


def test_waiting_for_requests_is_no_step():
    m = Moments()
    for _ in range(10):
        m.step(2, "full")
    m.step(5000, "full")
    m.step(2, "full")
    assert m.means_ms() == {(None, None, "full"): 2}
    assert m.clock.idle_ns == 5_000_000_000


def test_between_forwards_the_host_works_from_one_report_to_the_next_dispatch():
    m = Moments()
    for _ in range(5):
        m.step(10, "eager", asked_ms_ago=7)
    for _ in range(5):
        m.step(10, "piecewise", asked_ms_ago=8)
    taken = m.clock.take()[None, None]
    # Of each mode the first two are not timed, for the step before was another's or not in step.
    assert set(taken["step_by_mode"]) == {"eager", "piecewise"}
    assert (taken["between_forwards"]["n"], taken["between_forwards"]["s"]) == (7, (3 * 3 + 2 + 3 * 2) * 10**6)
    assert m.clock.take() == {}


def test_nothing_is_between_where_the_dispatch_is_unknown_or_the_host_waited_for_requests():
    m = Moments()
    for _ in range(10):
        m.step(2, "full")
    m.step(5000, "full", asked_ms_ago=1)
    assert "between_forwards" not in m.clock.take()[None, None]


def test_plans_are_timed_beside_the_steps():
    m = Moments()
    m.clock.plans.add(1_500_000)
    taken = m.clock.take()
    assert taken[None, None]["host_plan"]["n"] == 1
    assert m.clock.take() == {}
    assert Histogram(1, 1_500_000, 0, {int(k): v for k, v in taken[None, None]["host_plan"]["b"].items()}).mean == 1.5e6


def test_keys_are_bounded():
    m = Moments()
    for i in range(500):
        for _ in range(3):
            m.step(1, "full", f"phase {i}")
    assert len(m.clock.take()) <= 48
