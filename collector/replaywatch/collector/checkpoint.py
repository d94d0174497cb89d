"""What the detection thread remembers, written down and read back: lifetimes, snapshots and the recent past."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from replaywatch.collector.memory import WorkloadMemory
from replaywatch.collector.tables import SnapshotRow, WindowRow, WorkloadRow
from replaywatch.contract.errors import WireError
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window, Workload
from replaywatch.contract.wire import decode_record, jsonable

LOG = logging.getLogger("replaywatch.collector")


def save_lifetimes(session: Session, memories: Iterable[WorkloadMemory]) -> None:
    """Write the checkpoints of some workloads."""
    rows = [
        {
            "id": m.id,
            "last_seen_ns": m.last_seen_ns,
            "through_serial": m.through_serial,
            "lifetime": json.dumps(jsonable(m.lifetime), separators=(",", ":")),
        }
        for m in memories
        if m.lifetime is not None
    ]
    if rows:
        session.execute(update(WorkloadRow), rows)


def load_memories(
    session: Session, *, since_ns: int, horizon_ns: int, also: Collection[str] = ()
) -> dict[str, WorkloadMemory]:
    """The workloads that windows came from since some time, and those asked for: checkpoint plus later windows."""
    active = select(WindowRow.workload_id).where(WindowRow.received_ns >= since_ns).distinct()
    rows = session.scalars(select(WorkloadRow).where(WorkloadRow.id.in_(active) | WorkloadRow.id.in_(also)))
    loaded = (_load_one(session, row, horizon_ns, None) for row in rows)
    return {m.id: m for m in loaded if m is not None}


def load_memory(session: Session, key: str, horizon_ns: int, *, below_serial: int) -> WorkloadMemory | None:
    """One workload that comes back after it was forgotten, from windows of batches below a serial; None when new."""
    row = session.get(WorkloadRow, key)
    return None if row is None else _load_one(session, row, horizon_ns, below_serial)


def _load_one(session: Session, row: WorkloadRow, horizon_ns: int, below_serial: int | None) -> WorkloadMemory | None:
    memory = WorkloadMemory(
        id=row.id,
        workload=decode_record(Workload, json.loads(row.who)),
        first_seen_ns=row.first_seen_ns,
        last_seen_ns=row.last_seen_ns,
        lifetime=_window(row.lifetime, row.id) if row.lifetime is not None else None,
        through_serial=row.through_serial,
    )
    newest = _newest_end_ns(session, row.id)
    query = select(WindowRow.payload, WindowRow.received_ns, WindowRow.batch_serial).where(
        WindowRow.workload_id == row.id,
        (WindowRow.batch_serial > row.through_serial) | (WindowRow.end_ns > newest - horizon_ns),
    )
    if below_serial is not None:
        query = query.where(WindowRow.batch_serial < below_serial)
    for payload, received_ns, serial in session.execute(query.order_by(WindowRow.end_ns, WindowRow.id)):
        window = _window(payload, row.id)
        if window is None:
            continue
        if serial > row.through_serial:
            memory.absorb(window, received_ns, serial, horizon_ns)
        else:
            memory.recall(window, horizon_ns)
    memory.is_fresh = False
    return memory if memory.lifetime is not None else None


def _window(payload: str, key: str) -> Window | None:
    """A stored window; None, with a line in the log, for one that this release cannot read."""
    try:
        window = decode_record(Window, json.loads(payload))
    except WireError as error:
        LOG.warning("a stored window of workload %s is left out: %s", key, error)
        return None
    assert isinstance(window, Window)
    return window


def _newest_end_ns(session: Session, key: str) -> int:
    query = select(WindowRow.end_ns).where(WindowRow.workload_id == key).order_by(WindowRow.end_ns.desc()).limit(1)
    return session.scalar(query) or 0


def load_snapshots(
    session: Session, config_ids: Collection[str], fingerprint_ids: Collection[str]
) -> tuple[dict[str, EngineConfig], dict[str, Fingerprint]]:
    """Snapshots by the ids that windows use."""
    configs = {k: decode_record(EngineConfig, v) for k, v in _payloads(session, "config", config_ids)}
    fingerprints = {k: decode_record(Fingerprint, v) for k, v in _payloads(session, "fingerprint", fingerprint_ids)}
    return configs, fingerprints


def _payloads(session: Session, kind: str, ids: Collection[str]) -> list[tuple[str, object]]:
    if not ids:
        return []
    query = select(SnapshotRow.id, SnapshotRow.payload).where(SnapshotRow.kind == kind, SnapshotRow.id.in_(ids))
    return [(key, json.loads(payload)) for key, payload in session.execute(query)]
