"""Storing a batch: once per key, with its windows, snapshots and workloads, in one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from replaywatch.collector.identity import workload_id
from replaywatch.collector.tables import BatchRow, SnapshotRow, WindowRow, WorkloadRow
from replaywatch.contract.window import Window, Workload
from replaywatch.contract.wire import Batch, jsonable


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """What became of a batch; `serial` is None for one whose key was seen before."""

    serial: int | None
    received_ns: int
    batch: Batch

    @property
    def is_duplicate(self) -> bool:
        """Whether the batch had no effect."""
        return self.serial is None


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch with its rows made ready, so that the writing thread only writes."""

    batch: Batch
    received_ns: int
    key_digest: str
    workloads: Mapping[str, Workload]
    rows: list[dict[str, Any]]


def prepare(batch: Batch, received_ns: int) -> PreparedBatch:
    """Make the rows of a batch."""
    workloads: dict[str, Workload] = {}
    ids: dict[Workload, str] = {}
    rows = []
    for window in batch.windows:
        known = ids.get(window.workload)
        if known is None:
            known = ids[window.workload] = workload_id(window.workload)
            workloads[known] = window.workload
        rows.append(_window_row(known, window, received_ns))
    digest = hashlib.sha256(batch.key.encode("utf-8", "surrogatepass")).hexdigest()
    return PreparedBatch(batch, received_ns, digest, workloads, rows)


def store_batch(session: Session, prepared: PreparedBatch) -> StoredBatch:
    """Write a batch unless its key was seen."""
    batch, received_ns = prepared.batch, prepared.received_ns
    row = BatchRow(
        key_digest=prepared.key_digest, sent_ns=batch.sent_ns, received_ns=received_ns, windows=len(batch.windows)
    )
    if session.scalar(select(BatchRow.serial).where(BatchRow.key_digest == prepared.key_digest)) is not None:
        return StoredBatch(None, received_ns, batch)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        # Another collector on the same database stored it between the question and the answer.
        return StoredBatch(None, received_ns, batch)
    _add_workloads(session, prepared.workloads, received_ns)
    _add_snapshots(session, "fingerprint", batch.fingerprints, received_ns)
    _add_snapshots(session, "config", batch.configs, received_ns)
    if prepared.rows:
        session.execute(insert(WindowRow), [{**r, "batch_serial": row.serial} for r in prepared.rows])
    return StoredBatch(row.serial, received_ns, batch)


def _add_workloads(session: Session, workloads: Mapping[str, Workload], now_ns: int) -> None:
    found = _found(session.scalars(select(WorkloadRow.id).where(WorkloadRow.id.in_(workloads))))
    for key, who in workloads.items():
        if key not in found:
            text = json.dumps(jsonable(who), separators=(",", ":"))
            session.add(WorkloadRow(id=key, who=text, first_seen_ns=now_ns, last_seen_ns=now_ns))
    session.flush()


def _add_snapshots(session: Session, kind: str, snapshots: Mapping[str, object], now_ns: int) -> None:
    if not snapshots:
        return
    ids = select(SnapshotRow.id).where(SnapshotRow.kind == kind, SnapshotRow.id.in_(snapshots))
    found = _found(session.scalars(ids))
    for key, content in snapshots.items():
        if key not in found:
            text = json.dumps(jsonable(content), separators=(",", ":"))
            session.add(SnapshotRow(kind=kind, id=key, first_seen_ns=now_ns, payload=text))
    session.flush()


def _found(ids: Iterable[str]) -> set[str]:
    return set(ids)


def _window_row(known: str, window: Window, received_ns: int) -> dict[str, Any]:
    steps = window.dispatch.steps
    period = window.timing.step_period
    traced = window.traced
    return {
        "workload_id": known,
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "received_ns": received_ns,
        "config_id": window.config_id,
        "full_steps": float(steps.get("full", 0)) if steps is not None else None,
        "piecewise_steps": float(steps.get("piecewise", 0)) if steps is not None else None,
        "eager_steps": float(steps.get("eager", 0)) if steps is not None else None,
        "timed_steps": float(period.count) if period is not None else None,
        "timed_ns": float(period.sum) if period is not None else None,
        "kernels": float(traced.total_kernels) if traced is not None else None,
        "graph_kernels": float(traced.total_graph_kernels) if traced is not None else None,
        "busy_ns": float(traced.total_busy_ns) if traced is not None else None,
        "span_ns": float(traced.total_span_ns) if traced is not None else None,
        "real_tokens": _real(window.dispatch.real_tokens),
        "padded_tokens": _real(window.dispatch.padded_tokens),
        "payload": json.dumps(jsonable(window), separators=(",", ":")),
    }


def _real(value: int | None) -> float | None:
    return None if value is None else float(value)
