"""Deleting what is older than its retention, a little at a time so that ingest does not wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from replaywatch.collector.day_partitions import drop_days
from replaywatch.collector.tables import (
    AuditRow,
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
from replaywatch.collector.writer import Writer

LOG = logging.getLogger("replaywatch.collector")
CHUNK: Final = 2000
JUMP_NS: Final = 3600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """How old things may become, in nanoseconds: windows, their hourly sums, closed incidents and the audit trail."""

    windows_ns: int
    hours_ns: int
    incidents_ns: int


class Retention:
    """Deletes old windows, batch keys, hourly sums, closed incidents and workloads.

    On PostgreSQL windows go by whole days. What verdicts rested on outlives them: the hourly sums, and the evidence
    that each incident keeps. `steady` is a clock that nobody sets, in nanoseconds: where the other one has jumped ahead
    of it, nothing is deleted until the next sweep finds it still there.
    """

    def __init__(
        self, writer: Writer, clock: Callable[[], int], ages: Ages, steady: Callable[[], int] | None = None
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._ages = ages
        self._steady = steady or clock
        self._seen = clock(), self._steady()

    def sweep(self) -> int:
        """Delete everything that is too old; how many rows, and partitions, went. Raises: StoreError."""
        now_ns, ages = self._clock(), self._ages
        if self._has_jumped(now_ns):
            LOG.warning("the clock has jumped ahead; what is too old by it is kept until the next sweep")
            return 0
        windows_before, incidents_before = now_ns - ages.windows_ns, now_ns - ages.incidents_ns
        hours_before = now_ns - ages.hours_ns
        gone = (
            self._delete_windows(windows_before)
            + self._in_chunks(lambda s: _delete_batches(s, windows_before))
            + self._in_chunks(lambda s: _delete_hours(s, hours_before))
            + self._in_chunks(lambda s: _delete_incidents(s, incidents_before))
            + self._in_chunks(lambda s: _delete_audit(s, incidents_before))
            + self._in_chunks(lambda s: _delete_workloads(s, min(windows_before, incidents_before, hours_before)))
        )
        if gone:
            self._writer.forget()
        return gone

    def _has_jumped(self, now_ns: int) -> bool:
        (then_ns, steady_then_ns), self._seen = self._seen, (now_ns, self._steady())
        return now_ns - then_ns > self._seen[1] - steady_then_ns + JUMP_NS

    def _delete_windows(self, before_ns: int) -> int:
        def drop(session: Session) -> int | None:
            is_partitioned = session.get_bind().dialect.name == "postgresql"
            return drop_days(session, before_ns) if is_partitioned else None

        dropped = self._writer.do(drop)
        if dropped is not None:
            return dropped
        return self._in_chunks(lambda s: _delete_rows(s, WindowRow, before_ns)) + self._in_chunks(
            lambda s: _delete_rows(s, BodyRow, before_ns)
        )

    def _in_chunks(self, delete_some: Callable[[Session], int]) -> int:
        total = 0
        while gone := self._writer.do(delete_some):
            total += gone
        return total


def _delete_rows(session: Session, table: type[WindowRow] | type[BodyRow], before_ns: int) -> int:
    # Whole batches at a time: rows of one have one `received_ns`, the first column of the primary key.
    times = session.scalars(
        select(table.received_ns).where(table.received_ns < before_ns).order_by(table.received_ns).limit(CHUNK)
    ).all()
    if times:
        session.execute(delete(table).where(table.received_ns <= times[-1]))
    return len(times)


def _delete_batches(session: Session, before_ns: int) -> int:
    serials = session.scalars(select(BatchRow.serial).where(BatchRow.received_ns < before_ns).limit(CHUNK)).all()
    session.execute(delete(BatchRow).where(BatchRow.serial.in_(serials)))
    return len(serials)


def _delete_hours(session: Session, before_ns: int) -> int:
    hours = session.scalars(
        select(HourRow.hour_ns).where(HourRow.hour_ns < before_ns).order_by(HourRow.hour_ns).limit(CHUNK)
    ).all()
    if hours:
        session.execute(delete(HourRow).where(HourRow.hour_ns <= hours[-1]))
    return len(hours)


def _delete_audit(session: Session, before_ns: int) -> int:
    ids = session.scalars(select(AuditRow.id).where(AuditRow.at_ns < before_ns).limit(CHUNK)).all()
    session.execute(delete(AuditRow).where(AuditRow.id.in_(ids)))
    return len(ids)


def _delete_incidents(session: Session, before_ns: int) -> int:
    old = select(IncidentRow.id).where(IncidentRow.state == "closed", IncidentRow.closed_ns < before_ns)
    ids = session.scalars(old.limit(CHUNK)).all()
    session.execute(delete(NotificationRow).where(NotificationRow.incident_id.in_(ids)))
    session.execute(delete(MemberRow).where(MemberRow.incident_id.in_(ids)))
    session.execute(delete(IncidentEventRow).where(IncidentEventRow.incident_id.in_(ids)))
    session.execute(delete(IncidentRow).where(IncidentRow.id.in_(ids)))
    return len(ids)


def _delete_workloads(session: Session, before_ns: int) -> int:
    has_windows = select(WindowRow.workload_id).where(WindowRow.workload_id == WorkloadRow.id).exists()
    has_incidents = select(MemberRow.id).where(MemberRow.workload_id == WorkloadRow.id).exists()
    old = select(WorkloadRow.id).where(WorkloadRow.last_seen_ns < before_ns, ~has_windows, ~has_incidents)
    ids = session.scalars(old.limit(CHUNK)).all()
    session.execute(delete(WorkloadRow).where(WorkloadRow.id.in_(ids)))
    return len(ids)
