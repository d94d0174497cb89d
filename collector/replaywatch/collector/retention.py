"""Deleting what is older than its retention, a little at a time so that ingest does not wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from replaywatch.collector.tables import (
    BatchRow,
    IncidentEventRow,
    IncidentRow,
    NotificationRow,
    WindowRow,
    WorkloadRow,
)
from replaywatch.collector.writer import Writer

CHUNK: Final = 2000


class Retention:
    """Deletes old windows, batch keys, closed incidents and workloads; ages in nanoseconds."""

    def __init__(self, writer: Writer, clock: Callable[[], int], window_age_ns: int, incident_age_ns: int) -> None:
        self._writer = writer
        self._clock = clock
        self._window_age_ns = window_age_ns
        self._incident_age_ns = incident_age_ns

    def sweep(self) -> int:
        """Delete everything that is too old; how many rows went. Raises: StoreError."""
        now_ns = self._clock()
        windows_before, incidents_before = now_ns - self._window_age_ns, now_ns - self._incident_age_ns
        return (
            self._in_chunks(lambda s: _delete_windows(s, windows_before))
            + self._in_chunks(lambda s: _delete_batches(s, windows_before))
            + self._in_chunks(lambda s: _delete_incidents(s, incidents_before))
            + self._in_chunks(lambda s: _delete_workloads(s, min(windows_before, incidents_before)))
        )

    def _in_chunks(self, delete_some: Callable[[Session], int]) -> int:
        total = 0
        while gone := self._writer.do(delete_some):
            total += gone
        return total


def _delete_windows(session: Session, before_ns: int) -> int:
    ids = session.scalars(select(WindowRow.id).where(WindowRow.received_ns < before_ns).limit(CHUNK)).all()
    session.execute(delete(WindowRow).where(WindowRow.id.in_(ids)))
    return len(ids)


def _delete_batches(session: Session, before_ns: int) -> int:
    serials = session.scalars(select(BatchRow.serial).where(BatchRow.received_ns < before_ns).limit(CHUNK)).all()
    session.execute(delete(BatchRow).where(BatchRow.serial.in_(serials)))
    return len(serials)


def _delete_incidents(session: Session, before_ns: int) -> int:
    old = select(IncidentRow.id).where(IncidentRow.state == "closed", IncidentRow.closed_ns < before_ns)
    ids = session.scalars(old.limit(CHUNK)).all()
    session.execute(delete(NotificationRow).where(NotificationRow.incident_id.in_(ids)))
    session.execute(delete(IncidentEventRow).where(IncidentEventRow.incident_id.in_(ids)))
    session.execute(delete(IncidentRow).where(IncidentRow.id.in_(ids)))
    return len(ids)


def _delete_workloads(session: Session, before_ns: int) -> int:
    has_windows = select(WindowRow.id).where(WindowRow.workload_id == WorkloadRow.id).exists()
    has_incidents = select(IncidentRow.id).where(IncidentRow.workload_id == WorkloadRow.id).exists()
    old = select(WorkloadRow.id).where(WorkloadRow.last_seen_ns < before_ns, ~has_windows, ~has_incidents)
    ids = session.scalars(old.limit(CHUNK)).all()
    session.execute(delete(WorkloadRow).where(WorkloadRow.id.in_(ids)))
    return len(ids)
