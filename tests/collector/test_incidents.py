from __future__ import annotations

import pytest
from sqlalchemy import text

from collector.material import SECOND, workload
from collector.rig import WHO, Rig
from replaywatch.collector.identity import workload_id
from replaywatch.contract.errors import StoreError


def test_an_incident_opens_holds_and_closes(rig: Rig) -> None:
    rig.tick("page")
    assert rig.incidents() == []
    rig.tick("page", ticks=5)
    (opened,) = rig.incidents()
    assert (opened.state, opened.severity, opened.detector) == ("open", "page", "disabled")
    rig.tick("healthy", ticks=5)
    assert rig.incidents()[0].state == "open"
    rig.tick("healthy")
    (closed,) = rig.incidents()
    assert (closed.state, closed.closed_ns) == ("closed", rig.clock())
    assert closed.finding["title"] == "Graphs are off"


def test_rising_and_sinking_are_remembered(rig: Rig) -> None:
    rig.tick("warn", ticks=2)
    rig.tick("page", ticks=2)
    rig.tick("warn", ticks=6)
    (incident,) = rig.incidents()
    assert (incident.severity, incident.worst_severity) == ("warn", "page")


def test_a_workload_that_falls_silent_turns_stale_and_is_not_closed(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.quiet_tick(61)
    assert rig.incidents()[0].state == "stale"
    assert rig.detection.view.workloads[0].word == "stale"
    for _ in range(20):
        rig.quiet_tick(5)
    assert rig.incidents()[0].state == "stale"
    rig.tick("page")
    assert rig.incidents()[0].state == "open"


def test_a_workload_that_is_gone_ends_its_incident_without_calling_it_cured(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.quiet_tick(3700)
    (incident,) = rig.incidents()
    assert incident.state == "closed"
    assert rig.detection.view.workloads == ()
    with rig.store.session() as session:
        notes = session.execute(text("select event, note from incident_events order by id")).all()
    assert notes[-1][0] == "gone"
    assert "not known" in notes[-1][1]


def test_blindness_keeps_an_incident_open(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.tick("blind", ticks=20)
    assert rig.incidents()[0].state == "open"


def test_an_incident_survives_a_kill_and_does_not_open_twice(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.restart()
    rig.tick("page", ticks=4)
    assert [(i.id, i.state) for i in rig.incidents()] == [(1, "open")]
    rig.restart()
    rig.tick("healthy", ticks=6)
    assert [(i.id, i.state) for i in rig.incidents()] == [(1, "closed")]
    rig.tick("page", ticks=2)
    assert [i.id for i in rig.incidents("open")] == [2]


def test_downtime_of_the_collector_does_not_make_workloads_gone(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.clock.advance(7200)
    rig.restart()
    rig.quiet_tick(1)
    assert rig.incidents()[0].state == "open"
    rig.tick("page")
    assert rig.incidents()[0].state == "open"


def test_an_incident_of_a_forgotten_workload_still_ends_after_a_restart(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.clock.advance(10 * 3600)
    rig.restart()
    rig.quiet_tick(3700)
    assert rig.incidents()[0].state == "closed"


def test_a_store_that_fails_loses_no_incident(rig: Rig) -> None:
    rig.tick("page")
    with rig.store.session() as session, session.begin():
        session.execute(text("alter table incidents rename to hidden"))
    with pytest.raises(StoreError):
        rig.tick("page")
    with rig.store.session() as session, session.begin():
        session.execute(text("alter table hidden rename to incidents"))
    rig.detection.tick()
    assert [i.state for i in rig.incidents()] == ["open"]


def test_workloads_of_one_configuration_share_an_incident(rig: Rig) -> None:
    for _ in range(2):
        rig.tick("page", who=WHO)
        rig.tick("page", who=workload("pod-b"))
    (incident,) = rig.incidents("open")
    assert (incident.members, incident.open_members) == (2, 2)


def test_a_detector_that_raises_makes_its_workload_blind_and_stops_nothing(rig: Rig, caplog: object) -> None:
    rig.tick("page", ticks=2)
    rig.tick("raises", ticks=2)
    view = rig.detection.view.by_id[workload_id(WHO)]
    assert view.word == "blind"
    assert "OverflowError" in view.judgement.blind[0].reason
    rig.tick("page")
    assert rig.detection.view.by_id[workload_id(WHO)].word == "finding"


def test_the_lifetime_survives_restarts_exactly(rig: Rig) -> None:
    rig.tick("healthy", ticks=10)
    before = rig.detection.view.workloads[0].lifetime
    for cleanly in (False, True, False):
        rig.restart(cleanly=cleanly)
        rig.detection.tick()
        after = rig.detection.view.workloads[0]
        assert after.lifetime == before
    rig.tick("healthy", ticks=8)
    steps = rig.detection.view.workloads[0].lifetime.dispatch.steps
    assert steps is not None
    assert steps["full"] == 18 * 1494


def test_recent_evidence_reaches_back_one_horizon(rig: Rig) -> None:
    rig.tick("healthy", ticks=60)
    recent, lifetime = rig.judge.seen[-1].recent, rig.judge.seen[-1].lifetime
    assert 100 * SECOND <= recent.end_ns - recent.start_ns <= 125 * SECOND
    assert lifetime.end_ns - lifetime.start_ns == 300 * SECOND


def test_a_tick_without_new_windows_does_not_count(rig: Rig) -> None:
    rig.tick("page")
    rig.quiet_tick(5)
    assert rig.incidents() == []
    judged = len(rig.judge.seen)
    rig.quiet_tick(5)
    assert len(rig.judge.seen) == judged
