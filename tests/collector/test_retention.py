from __future__ import annotations

from dataclasses import replace

from sqlalchemy import func, select, text

from collector.material import SECOND
from collector.rig import WHO, ManualClock, Rig
from replaywatch.collector.day_partitions import DAY_NS
from replaywatch.collector.identity import workload_id
from replaywatch.collector.memory import HOUR_NS
from replaywatch.collector.retention import Ages, Retention
from replaywatch.collector.series import extent, read_series
from replaywatch.collector.tables import (
    BatchRow,
    BodyRow,
    HourRow,
    IncidentEventRow,
    IncidentRow,
    MemberRow,
    NotificationRow,
    WindowRow,
    WorkloadRow,
)

TABLES = (BatchRow, IncidentRow, MemberRow, IncidentEventRow, NotificationRow, WorkloadRow)
AGES = Ages(windows_ns=600 * SECOND, hours_ns=3600 * SECOND, incidents_ns=3600 * SECOND)


def sizes(rig: Rig, *tables: type) -> list[int]:
    with rig.store.session() as session:
        return [session.scalar(select(func.count()).select_from(t)) or 0 for t in tables or TABLES]


def test_old_rows_go_and_young_ones_stay(rig: Rig) -> None:
    retention = Retention(rig.writer, rig.clock, AGES)
    rig.tick("page", ticks=2)
    rig.tick("healthy", ticks=6)
    assert sizes(rig) == [8, 1, 1, 2, 2, 1]
    assert retention.sweep() == 0
    rig.clock.advance(590)
    rig.tick()
    assert retention.sweep() > 0
    assert sizes(rig) == [3, 1, 1, 2, 2, 1]
    if not rig.store.is_postgresql:
        assert sizes(rig, WindowRow, BodyRow) == [3, 3]
    rig.clock.advance(2 * 86400)
    retention.sweep()
    assert sizes(rig) == [0] * 6
    assert sizes(rig, WindowRow, BodyRow, HourRow) == [0, 0, 0]


def test_a_clock_that_jumps_ahead_for_a_moment_deletes_nothing(rig: Rig) -> None:
    steady = ManualClock()
    retention = Retention(rig.writer, rig.clock, AGES, steady)
    rig.tick("healthy", ticks=2)
    rig.clock.advance(10 * 365 * 86400)
    steady.advance(300)
    assert retention.sweep() == 0
    rig.clock.advance(-10 * 365 * 86400)
    steady.advance(300)
    assert retention.sweep() == 0
    assert sizes(rig, BatchRow) == [2]
    rig.clock.advance(10 * 86400)  # here it stays, as after a long sleep
    assert retention.sweep() == 0
    rig.clock.advance(300)
    steady.advance(300)
    assert retention.sweep() > 0
    assert sizes(rig, BatchRow) == [0]


def test_what_was_deleted_can_come_again(rig: Rig) -> None:
    rig.tick("healthy")
    rig.clock.advance(2 * 86400)
    Retention(rig.writer, rig.clock, AGES).sweep()
    assert sizes(rig, WorkloadRow) == [0]
    rig.tick("healthy")
    assert sizes(rig, WorkloadRow, WindowRow) == [1, 1]


def test_old_days_go_by_dropping_their_partitions(rig: Rig) -> None:
    if not rig.store.is_postgresql:
        return
    retention = Retention(rig.writer, rig.clock, replace(AGES, windows_ns=DAY_NS))
    query = text("SELECT count(*) FROM pg_inherits")

    def tables() -> int:
        with rig.store.session() as session:
            return session.scalar(query) or 0

    for day in range(4):
        rig.tick("healthy")
        retention.sweep()
        # Today's and yesterday's, and the one that the age still reaches into; the index of each counts too.
        assert 0 < tables() <= 3 * 5
        assert sizes(rig, WindowRow)[0] <= 3
        assert sizes(rig, WindowRow)[0] >= min(day + 1, 2)
        rig.clock.advance(86400)


def test_an_open_incident_is_never_deleted(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.clock.advance(10_000_000)
    Retention(rig.writer, rig.clock, AGES).sweep()
    assert sizes(rig, IncidentRow, MemberRow, WorkloadRow) == [1, 1, 1]


def test_the_lifetime_outlives_the_windows_that_made_it(rig: Rig) -> None:
    rig.tick("healthy", ticks=8)
    rig.detection.close()
    before = rig.detection.view.workloads[0].lifetime
    rig.clock.advance(2 * 86400)
    rig.tick("healthy")
    Retention(rig.writer, rig.clock, replace(AGES, incidents_ns=10 * DAY_NS)).sweep()
    assert sizes(rig, WindowRow)[0] == 1
    rig.restart()
    rig.detection.tick()
    after = rig.detection.view.workloads[0].lifetime
    assert after.start_ns == before.start_ns
    assert after.dispatch.steps is not None
    assert after.dispatch.steps["full"] == 9 * 1494


def test_hourly_sums_keep_every_step_after_their_windows_went(rig: Rig) -> None:
    ages = replace(AGES, hours_ns=10 * DAY_NS, incidents_ns=10 * DAY_NS)
    rig.clock.now_ns = rig.clock.now_ns // HOUR_NS * HOUR_NS + 3000 * SECOND
    rig.tick("healthy", ticks=300)  # over the turn of an hour
    rig.restart()  # without a last checkpoint
    rig.tick("healthy", ticks=10)
    rig.detection.close()
    rig.clock.advance(2 * 86400)
    Retention(rig.writer, rig.clock, ages).sweep()
    assert sizes(rig, WindowRow) == [0]
    key = workload_id(WHO)
    with rig.store.session() as session:
        whole = extent(session, key)
        assert whole is not None
        points = read_series(session, key, whole[0], whole[1] + 1, 10)
    assert sum(p.full_steps or 0 for p in points) == 310 * 1494
    assert sum(p.windows for p in points) == 310


def test_charts_go_from_hourly_sums_to_windows_without_counting_anything_twice(rig: Rig) -> None:
    rig.clock.now_ns = rig.clock.now_ns // HOUR_NS * HOUR_NS + 1800 * SECOND
    rig.tick("healthy", ticks=720)
    rig.detection.close()
    with rig.store.session() as session, session.begin():
        # As if the first windows had been deleted in the middle of their hour.
        session.execute(text("DELETE FROM windows WHERE end_ns < :t"), {"t": rig.clock.now_ns - 3000 * SECOND})
    key = workload_id(WHO)
    with rig.store.session() as session:
        whole = extent(session, key)
        assert whole is not None
        for points in (1, 13, 1000):
            found = read_series(session, key, whole[0], whole[1] + 1, points)
            assert sum(p.windows for p in found) == 720
            assert sum(p.full_steps or 0 for p in found) == 720 * 1494
