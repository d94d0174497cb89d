"""What engine hooks leave for the helper thread: in order, bounded, never lost, never waited for on the step path."""

from __future__ import annotations

import threading
import time

import pytest

from replaywatch.probe.engines import port as port_module
from replaywatch.probe.engines.port import FEW, MAX_WAITING, MOST_WAITING, SIGNAL, Port
from replaywatch.probe.imports import ImportWatch
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import Recorders
from replaywatch.probe.steps import StepLedger


class Harness:
    """A port, what it did, and how often it asked for the helper thread."""

    def __init__(self) -> None:
        self.woken, self.done = 0, list[int]()
        self.traced: list[bool] = []
        sight = self.sight = Sight()
        ledger = GraphLedger(sight, Recorders(0, lambda: None), lambda: None)
        self.port = Port(
            sight, ImportWatch(sight), StepLedger(), ledger, wake=self._wake, traced=self.traced
        )  # fmt: skip

    def _wake(self) -> None:
        self.woken += 1

    def later(self, *numbers: int) -> None:
        for number in numbers:
            self.port.later(self.done.append, number)


def test_what_is_left_waits_for_the_helper_which_is_asked_for_once() -> None:
    harness = Harness()
    harness.later(*range(100))
    assert (harness.done, harness.port.waits(), harness.port.works()) == ([], True, True)
    asked = harness.woken
    assert 1 <= asked <= 3  # two threads that begin at once may miss the first time
    assert harness.port.work_off()
    assert (harness.done, harness.port.waits()) == (list(range(100)), False)
    assert not harness.port.work_off()
    harness.later(4)
    assert harness.woken == asked + 1


def test_a_window_holds_all_that_was_left() -> None:
    harness = Harness()
    harness.later(1, 2)
    harness.port.flush()
    assert harness.done == [1, 2]


def test_a_long_queue_is_worked_off_where_it_grows() -> None:
    harness = Harness()
    harness.later(*range(MAX_WAITING - 1))
    assert harness.done == []
    harness.later(MAX_WAITING - 1)
    assert harness.done == list(range(FEW))
    harness.later(*range(MAX_WAITING, 5 * MAX_WAITING))
    assert len(harness.done) > 4 * MAX_WAITING
    harness.port.flush()
    assert harness.done == list(range(5 * MAX_WAITING))


def test_while_kernels_are_traced_nothing_is_left() -> None:
    """The tracer marks a step at the moment of its report."""
    harness = Harness()
    harness.later(1)
    harness.traced.append(True)
    harness.later(2)
    assert harness.done == [1, 2]
    harness.traced.clear()
    harness.later(3)
    assert harness.done == [1, 2]


def test_a_stepping_thread_never_waits_for_another_that_works_off_and_nothing_is_lost() -> None:
    harness, begun, go = Harness(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go.wait(10)

    harness.port.later(slow)
    helper = threading.Thread(target=harness.port.work_off)
    helper.start()
    begun.wait(10)
    begin = time.perf_counter()
    harness.later(*range(2 * MAX_WAITING))
    assert time.perf_counter() - begin < 1.0
    assert harness.done == []
    go.set()
    helper.join(10)
    harness.port.flush()
    assert harness.done == list(range(2 * MAX_WAITING))


def test_the_helper_takes_a_breath_after_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, slept = Harness(), list[tuple[float, int]]()
    monkeypatch.setattr(port_module, "sleep", lambda seconds: slept.append((seconds, len(harness.done))))
    harness.later(*range(3 * FEW))
    harness.port.work_off(breath_s=0.5)
    assert slept == [(0.5, FEW - 1), (0.5, 2 * FEW - 1), (0.5, 3 * FEW - 1)]
    assert harness.done == list(range(3 * FEW))
    harness.later(*range(3 * FEW))
    harness.port.flush()
    assert len(slept) == 3


def test_threads_that_step_at_once_lose_nothing() -> None:
    harness, each = Harness(), 3000
    threads = [threading.Thread(target=harness.later, args=range(at, at + each)) for at in (0, each, 2 * each)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        harness.port.work_off()
    for thread in threads:
        thread.join()
    harness.port.flush()
    assert sorted(harness.done) == list(range(3 * each))
    for at in (0, each, 2 * each):  # in the order of each thread
        own = [n for n in harness.done if at <= n < at + each]
        assert own == sorted(own)


def test_a_queue_that_nobody_works_off_stays_bounded_and_says_so() -> None:
    harness = Harness()
    harness.port._turn.acquire()
    harness.later(*range(MOST_WAITING + 10))
    assert len(harness.port._waiting) <= MOST_WAITING
    assert SIGNAL in {b["signal"] for b in harness.sight.blind_spots()}
    harness.port._turn.release()
    harness.port.flush()
    assert harness.done == list(range(11, MOST_WAITING + 10))


def test_a_forked_child_leaves_its_parents_steps_to_it() -> None:
    harness = Harness()
    harness.later(1)
    harness.port._turn.acquire()
    harness.port.forget()
    harness.later(2)
    harness.port.flush()
    assert harness.done == [2]
