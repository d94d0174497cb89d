from __future__ import annotations

from sqlalchemy import func, select

from collector.material import SECOND
from collector.rig import Rig
from replaywatch.collector.retention import Retention
from replaywatch.collector.tables import (
    BatchRow,
    IncidentEventRow,
    IncidentRow,
    NotificationRow,
    WindowRow,
    WorkloadRow,
)

TABLES = (WindowRow, BatchRow, IncidentRow, IncidentEventRow, NotificationRow, WorkloadRow)


def sizes(rig: Rig) -> list[int]:
    with rig.store.session() as session:
        return [session.scalar(select(func.count()).select_from(t)) or 0 for t in TABLES]


def test_old_rows_go_and_young_ones_stay(rig: Rig) -> None:
    retention = Retention(rig.writer, rig.clock, 600 * SECOND, 3600 * SECOND)
    rig.tick("page", ticks=2)
    rig.tick("healthy", ticks=6)
    assert sizes(rig) == [8, 8, 1, 2, 2, 1]
    assert retention.sweep() == 0
    rig.clock.advance(590)
    rig.tick()
    assert retention.sweep() > 0
    assert sizes(rig)[:2] == [3, 3]
    assert sizes(rig)[2:] == [1, 2, 2, 1]
    rig.clock.advance(4000)
    retention.sweep()
    assert sizes(rig) == [0, 0, 0, 0, 0, 0]


def test_an_open_incident_is_never_deleted(rig: Rig) -> None:
    rig.tick("page", ticks=2)
    rig.clock.advance(10_000_000)
    Retention(rig.writer, rig.clock, 600 * SECOND, 3600 * SECOND).sweep()
    assert sizes(rig)[2] == 1
    assert sizes(rig)[5] == 1


def test_the_lifetime_outlives_the_windows_that_made_it(rig: Rig) -> None:
    rig.tick("healthy", ticks=8)
    rig.detection.close()
    before = rig.detection.view.workloads[0].lifetime
    rig.clock.advance(500)
    rig.tick("healthy")
    Retention(rig.writer, rig.clock, 60 * SECOND, 3600 * SECOND).sweep()
    assert sizes(rig)[0] == 1
    rig.restart()
    rig.detection.tick()
    after = rig.detection.view.workloads[0].lifetime
    assert after.start_ns == before.start_ns
    assert after.dispatch.steps is not None
    assert after.dispatch.steps["full"] == 9 * 1494
