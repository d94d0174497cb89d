"""What the detection thread remembers, written down and read back: lifetimes, hours, snapshots and the recent past."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from replaywatch.collector.bodies import KeptBatch, batches_of, batches_since, newest_received_ns
from replaywatch.collector.identity import workload_id
from replaywatch.collector.ingest import sums_of
from replaywatch.collector.memory import HOUR_NS, WorkloadMemory, bounded, merge_in_order
from replaywatch.collector.remembered import recall, remember
from replaywatch.collector.tables import CheckpointRow, HourRow, SnapshotRow, Sums, WindowRow, WorkloadRow
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window, Workload
from replaywatch.detectors.sudden_state import SuddenState

SUM_NAMES = tuple(Sums.__annotations__)
_IDS_AT_ONCE = 500
Snapshot = TypeVar("Snapshot", EngineConfig, Fingerprint)


def save(session: Session, memories: Sequence[WorkloadMemory], partition: int, through_serial: int) -> None:
    """Write the checkpoints of some workloads: lifetimes, and what came to their hours since the last time."""
    lifetimes = [
        {
            "id": m.id,
            "last_seen_ns": m.last_seen_ns,
            "through_serial": m.through_serial,
            "lifetime": remember(m.lifetime),
            "sudden": remember(m.sudden),
        }
        for m in memories
        if m.lifetime is not None
    ]
    if lifetimes:
        session.execute(update(WorkloadRow), lifetimes)
    _save_hours(session, memories)
    session.merge(CheckpointRow(partition=partition, through_serial=through_serial))


def _save_hours(session: Session, memories: Sequence[WorkloadMemory]) -> None:
    fresh: list[dict[str, Any]] = []
    known: list[dict[str, Any]] = []
    parts = {(m.id, hour): part for m in memories for hour, part in m.hours.items()}
    here = _kept_hours(session, list(parts))
    for (key, hour), (window, windows) in parts.items():
        kept = here.get((key, hour))
        old = recall(Window, kept[1], f"hour {hour} of workload {key}") if kept is not None else None
        merged = window if old is None else bounded(merge_in_order(old, window))
        row = {
            "workload_id": key,
            "hour_ns": hour * HOUR_NS,
            "windows": windows + (kept[0] if kept is not None else 0),
            "merged": remember(merged),
            **dict(zip(SUM_NAMES, sums_of(merged), strict=True)),
        }
        (fresh if kept is None else known).append(row)
    if fresh:
        session.execute(insert(HourRow), fresh)
    if known:
        session.execute(update(HourRow), known)


def _kept_hours(session: Session, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, bytes]]:
    found: dict[tuple[str, int], tuple[int, bytes]] = {}
    for start in range(0, len(keys), _IDS_AT_ONCE):
        some = keys[start : start + _IDS_AT_ONCE]
        query = select(HourRow.workload_id, HourRow.hour_ns, HourRow.windows, HourRow.merged).where(
            HourRow.workload_id.in_({k for k, _ in some}), HourRow.hour_ns.in_({h * HOUR_NS for _, h in some})
        )
        for key, hour_ns, windows, merged in session.execute(query):
            found[key, hour_ns // HOUR_NS] = (windows, merged)
    return found


def load(
    session: Session, *, partition: int, since_ns: int, horizon_ns: int, also: Collection[str] = ()
) -> tuple[dict[str, WorkloadMemory], int]:
    """The workloads that windows came from since some time, and those asked for; and the last serial they include.

    Lifetimes are the checkpoint plus every later batch, the recent past is read from the batches of the last horizon.
    """
    checkpoint = session.get(CheckpointRow, partition)
    through = checkpoint.through_serial if checkpoint is not None else 0
    memories = _load_checkpoints(session, partition, since_ns, also)
    last = through
    recent_ns = newest_received_ns(session, partition) - horizon_ns
    for batch in batches_since(session, partition, through, recent_ns):
        _replay(memories, batch, horizon_ns)
        last = max(last, batch.serial)
    for memory in memories.values():
        memory.settle(horizon_ns)
        if memory.recent is None:
            recall_recent(session, memory, horizon_ns)
        memory.is_fresh = False
    return {k: m for k, m in memories.items() if m.lifetime is not None}, last


def _load_checkpoints(
    session: Session, partition: int, since_ns: int, also: Collection[str]
) -> dict[str, WorkloadMemory]:
    # A window may have come after the last checkpoint, which alone moves `last_seen_ns`.
    active = select(WindowRow.workload_id).where(WindowRow.received_ns >= since_ns).distinct()
    rows = session.scalars(
        select(WorkloadRow).where(
            WorkloadRow.partition == partition,
            (WorkloadRow.last_seen_ns >= since_ns) | WorkloadRow.id.in_(active) | WorkloadRow.id.in_(also),
        )
    )
    loaded = (_memory_of(row) for row in rows)
    return {m.id: m for m in loaded if m is not None}


def _replay(memories: dict[str, WorkloadMemory], batch: KeptBatch, horizon_ns: int) -> None:
    for window in batch.windows:
        memory = memories.get(workload_id(window.workload))
        if memory is None:
            continue
        if batch.serial > memory.saved_serial:
            memory.absorb(window, batch.received_ns, batch.serial)
        else:
            memory.recall(window, horizon_ns)


def load_some(session: Session, keys: Collection[str]) -> dict[str, WorkloadMemory]:
    """Workloads that come back after they were forgotten, from their checkpoints; new ones are not among them."""
    wanted = sorted(keys)
    found: dict[str, WorkloadMemory] = {}
    for start in range(0, len(wanted), _IDS_AT_ONCE):
        some = WorkloadRow.id.in_(wanted[start : start + _IDS_AT_ONCE]) & WorkloadRow.lifetime.is_not(None)
        for row in session.scalars(select(WorkloadRow).where(some)):
            memory = _memory_of(row)
            if memory is not None and memory.lifetime is not None:
                found[row.id] = memory
    return found


def recall_recent(session: Session, memory: WorkloadMemory, horizon_ns: int) -> None:
    """Read a silent workload's recent past from its last windows."""
    windows = [
        w for b in batches_of(session, memory.id, horizon_ns) for w in b.windows if workload_id(w.workload) == memory.id
    ]
    for window in sorted(windows, key=lambda w: w.end_ns):
        memory.recall(window, horizon_ns)


def _memory_of(row: WorkloadRow) -> WorkloadMemory | None:
    who = recall(Workload, row.who, f"workload {row.id}")
    if who is None:
        return None
    return WorkloadMemory(
        id=row.id,
        workload=who,
        first_seen_ns=row.first_seen_ns,
        last_seen_ns=row.last_seen_ns,
        lifetime=recall(Window, row.lifetime, f"lifetime of {row.id}") if row.lifetime is not None else None,
        through_serial=row.through_serial,
        saved_serial=row.through_serial,
        sudden=_sudden_of(row),
    )


def _sudden_of(row: WorkloadRow) -> SuddenState:
    """What windows taught; nothing where it was not kept, or by a release that kept it otherwise."""
    found = recall(SuddenState, row.sudden, f"what was learnt of {row.id}") if row.sudden is not None else None
    return found if found is not None else SuddenState()


def load_snapshots(
    session: Session, config_ids: Collection[str], fingerprint_ids: Collection[str]
) -> tuple[dict[str, EngineConfig], dict[str, Fingerprint]]:
    """Snapshots by the ids that windows use."""
    configs = _snapshots(session, EngineConfig, "config", config_ids)
    return configs, _snapshots(session, Fingerprint, "fingerprint", fingerprint_ids)


def _snapshots(session: Session, record: type[Snapshot], kind: str, ids: Iterable[str]) -> dict[str, Snapshot]:
    wanted = sorted(ids)
    found: dict[str, Snapshot] = {}
    for start in range(0, len(wanted), _IDS_AT_ONCE):
        some = wanted[start : start + _IDS_AT_ONCE]
        query = select(SnapshotRow.id, SnapshotRow.payload).where(SnapshotRow.kind == kind, SnapshotRow.id.in_(some))
        for key, payload in session.execute(query):
            content: Any = recall(record, payload, f"{kind} {key}")
            if content is not None:
                found[key] = content
    return found
