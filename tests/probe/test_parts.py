"""The small parts: settings, budget, steps, the search for steps, names of errors."""

from __future__ import annotations

import threading
from numbers import Integral
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaywatch.contract.window import FALLBACK_REASONS, Mode, Phase
from replaywatch.probe import inductor_reasons
from replaywatch.probe.budget import Budget
from replaywatch.probe.cuda_errors import error_name
from replaywatch.probe.engines.port import MAX_CELLS, MEASURED_ONE_IN, Port
from replaywatch.probe.imports import ImportWatch
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.patching import Function, PatchSet, Switch
from replaywatch.probe.settings import TABLE, Settings, default_socket, option_rows, settle, variable
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import RING, GraphSlot, Recorder, Recorders
from replaywatch.probe.steps import MODES, PHASES, REASONS, StepLedger, checked_step
from replaywatch.probe.steps_in_replays import MAX_ROWS, StepFinder, continues


def test_every_option_has_a_field_a_variable_and_a_help() -> None:
    for option, row in zip(option_rows(), TABLE, strict=True):
        assert option.variable("probe") == variable(row[0])
        assert option.help
        assert option.field in Settings.__slots__
        assert getattr(settle({}, {}), option.field) is not None or option.default is None


@given(st.dictionaries(st.sampled_from([variable(row[0]) for row in TABLE]), st.text(max_size=12)))
def test_any_environment_gives_settings_within_their_bounds(environment: dict[str, str]) -> None:
    settings = settle({}, environment)
    for name, kind, default, _, _, least, most in TABLE:
        value = getattr(settings, name.replace("-", "_"))
        assert isinstance(value, kind) or value == default
        if least is not None and most is not None:
            assert least <= value <= most


def test_arguments_win_over_the_environment_and_unknown_ones_are_named() -> None:
    settings = settle({"window_seconds": 2, "no_such": 1}, {variable("window-seconds"): "9"})
    assert settings.window_seconds == 2
    assert settings.problems == ["no_such is no option of the probe"]


def test_the_socket_is_where_the_agent_listens() -> None:
    from replaywatch.agent.options import AgentOptions, socket_path

    for environment in ({}, {"XDG_RUNTIME_DIR": "/run/user/7"}):
        assert default_socket(environment) == str(socket_path(AgentOptions(), environment))


SECOND = 1_000_000_000


def test_a_budget_that_is_exceeded_stretches_and_relaxes_when_calm() -> None:
    budget = Budget(0.005)
    assert budget.settle(0.006 * SECOND, SECOND, 0)
    assert budget.settle(0.006 * SECOND, SECOND, 0)
    assert (budget.stretch, budget.take_throttled(), budget.take_throttled()) == (4, 2, 0)
    for _ in range(6):
        assert not budget.settle(0.001 * SECOND, SECOND, 0)
    assert budget.stretch == 2
    for _ in range(20):
        budget.settle(0.004 * SECOND, SECOND, 0)  # within the budget, but not calm
    assert budget.stretch == 2


def test_what_steps_take_cannot_be_saved_and_leaves_the_rest_a_part_of_the_budget() -> None:
    budget = Budget(0.005)
    for _ in range(6):
        assert not budget.settle(0.0075 * SECOND, SECOND, 0, fixed_ns=0.006 * SECOND)  # 0.15 % besides
    assert (budget.stretch, budget.take_throttled()) == (1, 0)
    assert budget.settle(0.0085 * SECOND, SECOND, 0, fixed_ns=0.006 * SECOND)
    assert budget.settle(0.006 * SECOND, SECOND, 0, fixed_ns=0.001 * SECOND)  # more than the four fifths that are left
    assert budget.stretch == 4
    for _ in range(12):
        assert not budget.settle(0.0064 * SECOND, SECOND, 0, fixed_ns=0.006 * SECOND)  # calm, by what can be saved
    assert budget.stretch == 1


def windows_of(budget: Budget, replays: int, windows: int, other_ns: int = 0) -> list[bool]:
    """Whether replays are only counted after each of some windows of a second with so many of them."""
    found = []
    for _ in range(windows):
        budget.settle(budget.spent_ns(budget.hooks_ns(replays, 0), other_ns, 0, 0), SECOND, replays)
        found.append(budget.counting_only)
    return found


def test_replays_are_only_counted_where_slowing_down_is_not_enough_and_seen_again_when_fewer_come() -> None:
    budget = Budget(0.005)
    budget.replay_ns, budget.count_ns = 400.0, 160.0
    assert windows_of(budget, 20_000, 8) == [False] * 6 + [True] * 2  # 0.8 % as all are seen, 0.32 % as counted
    assert budget.stretch == 64
    assert windows_of(budget, 8_000, 9) == [True] * 9  # seeing them would take more than half of the budget
    assert windows_of(budget, 6_000, 6) == [True] * 5 + [False]
    assert windows_of(budget, 6_000, 9) == [False] * 9
    assert budget.stretch == 64
    windows_of(budget, 100, 6 * 6)
    assert budget.stretch == 1


def test_replays_that_cost_little_are_seen_whatever_else_costs_too_much() -> None:
    budget = Budget(0.005)
    budget.replay_ns, budget.count_ns = 400.0, 160.0
    assert not any(windows_of(budget, 1000, 20, other_ns=SECOND // 50))
    assert budget.stretch == 64


def test_costs_add_up() -> None:
    budget = Budget(0.005)
    budget.replay_ns, budget.count_ns, budget.step_ns = 500.0, 200.0, 700.0
    assert budget.hooks_ns(10, 3) == 10 * 500 + 3 * 700
    assert budget.spent_ns(7100.0, 1000, 1, 100) == 7100 + 1000 + 12_000 + 8
    budget.counting_only = True
    assert budget.hooks_ns(10, 3) == 10 * 200 + 3 * 700


def test_what_lies_before_a_time_of_counting_only_ends_neither_a_step_nor_a_gap() -> None:
    class Sample:
        waits = True

    graphs, finder, recorders = slots(1), StepFinder(), Recorders(0, lambda: None)
    recorder, sample = recorders.here(), Sample()
    play([1] * 20, graphs, finder, recorder)
    recorder.sample = sample
    recorders.lay_aside()
    assert (recorder.sample, sample.waits, recorder.last_start_ns) == (None, False, 0)
    recorder.rows[20], recorder.n = (500_000_000, 500_000_010, 1), 21
    finder.drain(recorder, graphs)
    taken = finder.step_period.take()
    assert taken is not None
    assert (taken["n"], taken["s"], finder.idle_ns) == (19, 19_000, 0)


def test_every_thread_that_replays_is_watched_for_as_long_as_it_lives() -> None:
    recorders = Recorders(0, lambda: None)
    together, go = threading.Barrier(301), threading.Event()

    def replay() -> None:
        recorders.here()
        together.wait()
        go.wait()

    threads = [threading.Thread(target=replay) for _ in range(300)]
    for thread in threads:
        thread.start()
    together.wait()
    assert len(recorders.alive()) == 300
    go.set()
    for thread in threads:
        thread.join()
    assert recorders.alive() == []
    assert len(recorders._all) == 0


def test_batch_sizes_stay_within_the_contracts_keys() -> None:
    ledger = StepLedger()
    for size in range(1, 5000):
        ledger.record("eager", batch=size)
    counts = ledger.take()[None, None]
    assert sum(counts["batch_sizes"].values()) == 4999
    assert len(counts["batch_sizes"]) <= 64
    assert counts["steps"] == {"eager": 4999}


def test_words_of_steps_are_the_contracts() -> None:
    assert frozenset(FALLBACK_REASONS) == REASONS
    assert get_args(Phase) == PHASES
    assert get_args(Mode) == MODES


class Odd:
    """An integer of somebody else's, as numpy's are."""

    def __int__(self) -> int:
        return 4


Integral.register(Odd)


class Tensor:
    """Something that becomes an integer only by waiting for the device."""

    def __index__(self) -> int:
        raise AssertionError

    __int__ = __index__


def test_a_step_holds_plain_values_only() -> None:
    step = checked_step("eager", Odd(), True, None, "other", "prefill", "draft")  # type: ignore[arg-type]
    assert step == ("eager", 4, 1, None, "other", "prefill", "draft")
    assert {type(value) for value in step} <= {str, int, type(None)}


@pytest.mark.parametrize(
    "about",
    [
        {"mode": "replayed"},
        {"mode": ["full"]},
        {"phase": "warm"},
        {"reason": "too large"},
        {"component": "x" * 65},
        {"component": "\ud800"},
        {"component": object()},
        {"batch": Tensor()},
        {"batch": -1},
        {"real_tokens": 1 << 40},
        {"padded_tokens": 4.5},
        {"sequences": 4},
    ],
)
def test_a_step_that_no_window_can_hold_is_refused(about: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        checked_step(**{"mode": "full", **about})  # type: ignore[arg-type]


def test_unknown_modes_are_not_counted() -> None:
    ledger = StepLedger()
    ledger.record("replayed")
    assert ledger.take() == {}


def play(
    order: list[int], graphs: dict[int, GraphSlot], finder: StepFinder, recorder: Recorder, gap_ns: int = 1000
) -> None:
    for number in order:
        start = recorder.n * gap_ns + 1
        recorder.rows[recorder.n % RING] = (start, start + 10, number)
        recorder.n += 1
        if recorder.n % 256 == 0:
            finder.drain(recorder, graphs)
    finder.drain(recorder, graphs)


def slots(count: int) -> dict[int, GraphSlot]:
    return {n: GraphSlot(n, "user", "ready") for n in range(1, count + 1)}


@pytest.mark.parametrize("pieces", [1, 2, 7, 33])
def test_pieces_in_order_are_one_step(pieces: int) -> None:
    graphs, finder, recorder = slots(pieces), StepFinder(), Recorder(0)
    play(list(range(1, pieces + 1)) * 40, graphs, finder, recorder)
    finder.step_period.clear()
    play(list(range(1, pieces + 1)) * 20, graphs, finder, recorder)
    taken = finder.step_period.take()
    assert taken is not None
    assert taken["n"] == 20
    assert taken["s"] == 20 * pieces * 1000
    assert [continues(s) for s in graphs.values()] == [False] + [True] * (pieces - 1)


def test_sizes_of_a_ladder_are_steps_of_their_own() -> None:
    graphs, finder, recorder = slots(4), StepFinder(), Recorder(0)
    order = [1] * 50 + [2] * 50 + [3] * 50 + [2] * 50 + [4] * 50
    play(order, graphs, finder, recorder)
    taken = finder.step_period.take()
    assert taken is not None
    assert taken["n"] == len(order) - 1


def test_more_rows_than_are_worked_on_leave_no_wrong_period() -> None:
    graphs, finder, recorder = slots(1), StepFinder(), Recorder(0)
    for _ in range(3000):
        recorder.rows[recorder.n % RING] = (recorder.n * 1000 + 1, recorder.n * 1000 + 11, 1)
        recorder.n += 1
    finder.drain(recorder, graphs)
    taken = finder.step_period.take()
    assert taken is not None
    assert taken["n"] == MAX_ROWS - 1
    assert taken["s"] == (MAX_ROWS - 1) * 1000


def test_waiting_for_work_is_no_step() -> None:
    graphs, finder, recorder = slots(1), StepFinder(), Recorder(0)
    play([1] * 20, graphs, finder, recorder)
    recorder.rows[recorder.n % RING] = (60_000_000_000, 60_000_000_010, 1)
    recorder.n += 1
    finder.drain(recorder, graphs)
    assert finder.step_period.count == 19
    assert finder.idle_ns > 59_000_000_000


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA"), "cudaErrorIllegalAddress"),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"),
         "cudaErrorStreamCaptureUnsupported"),
        (RuntimeError("Search for `cudaErrorLaunchFailure' in the CUDA documentation"), "cudaErrorLaunchFailure"),
        (RuntimeError("CUDA error: operation not permitted"), "cudaErrorNotPermitted"),
        (RuntimeError("my prompt: hello"), "RuntimeError"),
        (type("Odd", (Exception,), {})("x"), "other"),
    ],
)  # fmt: skip
def test_errors_have_names_of_a_closed_set(error: Exception, name: str) -> None:
    assert error_name(error) == name


def test_an_error_code_wins_over_words() -> None:
    error = RuntimeError("CUDA error: unknown error")
    error.error_code = 719  # type: ignore[attr-defined]
    assert error_name(error) == "cudaErrorLaunchFailure"


@given(st.text(max_size=300))
def test_any_message_has_a_reason_and_a_short_text(text: str) -> None:
    assert inductor_reasons.reason_of(text) in FALLBACK_REASONS
    detail, where = inductor_reasons.tidy(text)
    assert len(detail) <= 300
    assert "\n" not in detail
    assert where is None or "/" not in where


class Hooked:
    """Two functions of one signal."""

    def one(self) -> None:
        """Hooked."""

    def two(self) -> None:
        """Hooked as well."""


def handed_on(original: Function, on: Switch) -> Function:
    def wrapper(*args: object) -> object:
        return original(*args) if on else None

    return wrapper


@pytest.mark.parametrize("reason", ["failed", "not there"])
def test_a_hook_that_comes_back_clears_no_other_reason_of_its_signal(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sight, switches = Sight(), []

    def noted(original: Function, on: Switch) -> Function:
        switches.append(on)
        return handed_on(original, on)

    patches = PatchSet(sight)
    monkeypatch.setattr(Hooked, "one", Hooked.one)
    monkeypatch.setattr(Hooked, "two", Hooked.two)
    assert patches.wrap(Hooked, "one", "signal", noted)
    if reason == "not there":
        assert not patches.wrap(Hooked, "three", "signal", noted)
    else:
        assert patches.wrap(Hooked, "two", "signal", noted)
    ours = Hooked.one
    Hooked.one = lambda self: None  # type: ignore[method-assign]
    told = [signal for _ in range(2) for signal in patches.overwritten()]
    if reason == "failed":
        assert told == ["signal"]
        switches[1].off()
        sight.fault("signal", ValueError("failed"))
    before = sight.blind_spots()
    assert reason in before[0]["reason"] or "does not exist" in before[0]["reason"]
    Hooked.one = ours  # type: ignore[method-assign]
    assert patches.overwritten() == []
    assert sight.blind_spots() == before
    patches.remove()


def test_patches_that_were_removed_wrap_nothing_any_more() -> None:
    patches, before = PatchSet(Sight()), Hooked.one
    patches.remove()
    assert not patches.wrap(Hooked, "one", "signal", handed_on)
    assert Hooked.one is before


def test_a_port_that_nobody_flushes_stays_small_and_counts_exactly() -> None:
    sight, ledger, n = Sight(), StepLedger(), 2 * MAX_CELLS + 5
    port = Port(sight, ImportWatch(sight), ledger, GraphLedger(sight, Recorders(0, lambda: None), lambda: None))
    for tokens in range(n):
        port.step("eager", 1, tokens, tokens, "other")
    assert len(port._cells) == MAX_CELLS
    port.flush()
    for tokens in range(n):
        port.step("full", 1, tokens)
    port.flush()
    counts = ledger.take()[None, None]
    assert counts["steps"] == {"eager": n, "full": n}
    assert counts["real_tokens"] == n * (n - 1)


def test_a_port_measures_what_a_step_takes_where_it_is_told_and_not_what_is_told_later() -> None:
    sight, ledger = Sight(), StepLedger()
    port = Port(sight, ImportWatch(sight), ledger, GraphLedger(sight, Recorders(0, lambda: None), lambda: None))
    for _ in range(MEASURED_ONE_IN):
        port.step("full", at_ns=1)
    assert port.take_took() == 0.0
    for _ in range(MEASURED_ONE_IN - 1):
        port.step("full")
    assert port.take_took() == 0.0
    port.step("full")
    assert 0 < port.take_took() < 1e8
