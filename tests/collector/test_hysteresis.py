from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from collector.rig import made_finding, workload
from replaywatch.collector.hysteresis import QUIET, Change, Hold, Policy, Sight, sight_of, step
from replaywatch.contract.verdict import Blind, Healthy, WarmingUp, severity_rank
from replaywatch.detectors.judge import Judgement

POLICY = Policy("warn", 2, 6)
SIGHTS = st.lists(st.sampled_from([None, "none", "info", "warn", "page"]), max_size=60)


def play(sights: list[Sight], policy: Policy = POLICY) -> tuple[Hold, list[Change | None]]:
    hold, changes = QUIET, []
    for sight in sights:
        hold, change = step(hold, sight, policy)
        changes.append(change)
    return hold, changes


def test_a_single_tick_opens_nothing() -> None:
    assert play(["page", "none", "page", "none"])[1] == [None] * 4


def test_a_fault_that_holds_opens_once() -> None:
    assert play(["warn", "warn", "warn", "warn"])[1] == [None, "opened", None, None]


def test_it_opens_with_the_severity_that_held() -> None:
    hold, changes = play(["page", "warn"])
    assert changes == [None, "opened"]
    assert hold.severity == "warn"


def test_information_never_opens() -> None:
    assert play(["info"] * 10) == (QUIET, [None] * 10)


def test_it_rises_only_when_the_worse_severity_holds() -> None:
    assert play(["warn", "warn", "page", "warn", "page", "page"])[1][-4:] == [None, None, None, "raised"]


def test_it_sinks_after_as_many_ticks_as_it_would_close() -> None:
    hold, changes = play(["page"] * 2 + ["warn"] * 6)
    assert changes[-2:] == [None, "lowered"]
    assert hold.severity == "warn"


def test_it_closes_after_the_fault_stayed_away_for_six_ticks() -> None:
    assert play(["warn"] * 2 + ["none"] * 6)[1][-2:] == [None, "closed"]
    assert "closed" not in play(["warn"] * 2 + ["none"] * 5 + ["warn"] + ["none"] * 5)[1]


def test_blindness_neither_opens_nor_closes() -> None:
    assert play(["warn", None, None, "warn"])[1][-1] == "opened"
    assert "closed" not in play(["warn"] * 2 + [None] * 50)[1]


@given(SIGHTS)
def test_openings_and_closings_take_turns(sights: list[Sight]) -> None:
    _, changes = play(sights)
    edges = [c for c in changes if c in ("opened", "closed")]
    assert edges == [("opened", "closed")[i % 2] for i in range(len(edges))]


@given(SIGHTS)
def test_an_open_severity_was_really_seen_in_two_ticks_running(sights: list[Sight]) -> None:
    hold, _ = play(sights)
    if hold.severity == "none":
        return
    seen = [s for s in sights if s is not None]
    pairs = pairwise(seen)
    assert any(min(severity_rank(a), severity_rank(b)) >= severity_rank(hold.severity) for a, b in pairs)


def test_the_sight_of_a_detector_that_could_not_look_is_none() -> None:
    who = workload("pod-a")
    for unseeing in ({"blind": (Blind("disabled", "r"),)}, {"warming_up": (WarmingUp("disabled", "r"),)}):
        parts = {"findings": (), "healthy": (), "warming_up": (), "blind": (), **unseeing}
        judgement = Judgement(workload=who, verdict="blind", severity="none", estimate=None, **parts)
        assert sight_of(judgement, "disabled") is None
    healthy = Judgement(who, "healthy", "none", (), (Healthy("disabled", "looked"),), (), (), None)
    assert sight_of(healthy, "disabled") == "none"
    faulty = Judgement(who, "finding", "page", (made_finding("page"),), (), (), (), None)
    assert sight_of(faulty, "disabled") == "page"
