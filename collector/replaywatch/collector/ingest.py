"""Storing batches: each once per key, with its windows, snapshots and workloads, many in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Table, insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from replaywatch.collector.bulk import append_rows
from replaywatch.collector.day_partitions import add_days, day_of
from replaywatch.collector.identity import workload_id
from replaywatch.collector.remembered import remember
from replaywatch.collector.tables import BatchRow, BodyRow, SnapshotRow, WindowRow, WorkloadRow
from replaywatch.contract.window import Window, Workload
from replaywatch.contract.wire import Batch

WINDOW_COLUMNS: Final = (
    "received_ns",
    "batch_serial",
    "position",
    "workload_id",
    "start_ns",
    "end_ns",
    "full_steps",
    "piecewise_steps",
    "eager_steps",
    "timed_steps",
    "timed_ns",
    "kernels",
    "graph_kernels",
    "busy_ns",
    "span_ns",
    "real_tokens",
    "padded_tokens",
)
KNOWN_MAX: Final = 500_000
# The same few thousand send again and again; finding an id costs a tenth of making it.
_id_of: Final = lru_cache(50_000)(workload_id)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """What became of a batch; `serial` is None for one whose key was seen before. `ids` are those of its workloads."""

    serial: int | None
    received_ns: int
    batch: Batch
    ids: Mapping[Workload, str]

    @property
    def is_duplicate(self) -> bool:
        """Whether the batch had no effect."""
        return self.serial is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBatch:
    """A batch with its rows made ready, so that the writing thread only writes. `body` is what was posted."""

    batch: Batch
    received_ns: int
    shift_ns: int
    key_digest: str
    ids: Mapping[Workload, str]
    rows: Sequence[tuple[Any, ...]]
    body: bytes
    is_gzip: bool
    partition: int = 0

    @property
    def workload_ids(self) -> Iterable[str]:
        """Ids of the workloads that the batch is about."""
        return self.ids.values()


def key_digest(key: str) -> str:
    """What the store keeps of a batch key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def prepare(
    batch: Batch, received_ns: int, *, body: bytes, is_gzip: bool, shift_ns: int = 0, partition: int = 0
) -> PreparedBatch:
    """Make the rows of a batch."""
    ids: dict[Workload, str] = {}
    rows = []
    for window in batch.windows:
        known = ids.get(window.workload)
        if known is None:
            known = ids[window.workload] = _id_of(window.workload)
        rows.append((known, window.start_ns, window.end_ns, *sums_of(window)))
    return PreparedBatch(
        batch=batch,
        received_ns=received_ns,
        shift_ns=shift_ns,
        key_digest=key_digest(batch.key),
        ids=ids,
        rows=rows,
        body=body,
        is_gzip=is_gzip,
        partition=partition,
    )


@dataclass(slots=True)
class Accepted:
    """What a group of batches became, in their order, and what is known to be in the store once it is committed."""

    stored: list[StoredBatch] = field(default_factory=list)
    known: set[object] = field(default_factory=set)


class BatchStorer:
    """Writes groups of batches. It remembers which workloads, snapshots and days the store has; one thread uses it."""

    def __init__(self) -> None:
        self._known: set[object] = set()

    def forget(self) -> None:
        """Look again what the store has, because something was deleted."""
        self._known.clear()

    def store(self, session: Session, group: Sequence[PreparedBatch]) -> Accepted:
        """Write those whose keys were not seen."""
        serials = _add_batches(session, group)
        accepted = Accepted()
        new: list[tuple[int, PreparedBatch]] = []
        for prepared in group:
            # Of several with one key in a group, the first takes the serial.
            serial = serials.pop(prepared.key_digest, None)
            accepted.stored.append(StoredBatch(serial, prepared.received_ns, prepared.batch, prepared.ids))
            if serial is not None:
                new.append((serial, prepared))
        if new:
            accepted.known |= self._add_days(session, new)
            accepted.known |= self._add_workloads(session, new)
            accepted.known |= self._add_snapshots(session, new)
            _add_windows(session, new)
        return accepted

    def committed(self, accepted: Accepted) -> None:
        """Remember what is in the store now."""
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known |= accepted.known

    def _add_days(self, session: Session, new: Sequence[tuple[int, PreparedBatch]]) -> set[object]:
        received: set[object] = {day_of(p.received_ns) for _, p in new}
        days = received - self._known
        if days and session.get_bind().dialect.name == "postgresql":
            add_days(session, sorted(d for d in days if isinstance(d, int)))
        return days

    def _add_workloads(self, session: Session, new: Sequence[tuple[int, PreparedBatch]]) -> set[object]:
        rows = {
            key: {
                "id": key,
                "who": remember(who),
                "partition": prepared.partition,
                "first_seen_ns": prepared.received_ns,
                "last_seen_ns": prepared.received_ns,
                "through_serial": 0,
            }
            for _, prepared in new
            for who, key in prepared.ids.items()
            if key not in self._known
        }
        _add_missing(session, WorkloadRow.__table__, rows)
        return set(rows)

    def _add_snapshots(self, session: Session, new: Sequence[tuple[int, PreparedBatch]]) -> set[object]:
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for _, prepared in new:
            for kind, snapshots in (("fingerprint", prepared.batch.fingerprints), ("config", prepared.batch.configs)):
                for key, content in snapshots.items():
                    if (kind, key) not in self._known:
                        first = {"first_seen_ns": prepared.received_ns, "payload": remember(content)}
                        rows.setdefault((kind, key), {"kind": kind, "id": key, **first})
        _add_missing(session, SnapshotRow.__table__, rows)
        return set(rows)


def _add_batches(session: Session, group: Sequence[PreparedBatch]) -> dict[str, int]:
    """Serials by key digest of those that are new."""
    rows: dict[str, dict[str, Any]] = {}
    for p in group:
        row: dict[str, Any] = {"sent_ns": p.batch.sent_ns, "received_ns": p.received_ns, "shift_ns": p.shift_ns}
        row |= {"key_digest": p.key_digest, "windows": len(p.batch.windows), "partition": p.partition}
        rows.setdefault(p.key_digest, row)
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(BatchRow).on_conflict_do_nothing().returning(BatchRow.key_digest, BatchRow.serial)
    return {row[0]: row[1] for row in session.execute(statement, list(rows.values()))}


def _add_missing(session: Session, table: Any, rows: Mapping[Any, Mapping[str, Any]]) -> None:
    """Add rows unless their keys are there. In the order of their keys, so that two writers do not lock each other."""
    if not rows:
        return
    assert isinstance(table, Table)
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    session.execute(dialect.insert(table).on_conflict_do_nothing(), [dict(rows[key]) for key in sorted(rows)])


def _add_windows(session: Session, new: Sequence[tuple[int, PreparedBatch]]) -> None:
    bodies = [{"received_ns": p.received_ns, "serial": n, "is_gzip": p.is_gzip, "body": p.body} for n, p in new]
    session.execute(insert(BodyRow), bodies)
    rows = [(p.received_ns, n, place, *row) for n, p in new for place, row in enumerate(p.rows)]
    append_rows(session, WindowRow.__tablename__, WINDOW_COLUMNS, rows)


def sums_of(window: Window) -> tuple[float | None, ...]:
    """What charts add up, in the order of the columns of `tables.Sums`."""
    steps = window.dispatch.steps
    period = window.timing.steps
    traced = window.traced
    dispatched: tuple[float | None, ...] = (None, None, None)
    if steps is not None:
        dispatched = (float(steps.get("full", 0)), float(steps.get("piecewise", 0)), float(steps.get("eager", 0)))
    timed = (None, None) if period is None else (float(period.count), float(period.sum))
    seen: tuple[float | None, ...] = (None, None, None, None)
    if traced is not None:
        seen = (
            float(traced.total_kernels),
            float(traced.total_graph_kernels),
            float(traced.total_busy_ns),
            float(traced.total_span_ns),
        )
    return (*dispatched, *timed, *seen, _real(window.dispatch.real_tokens), _real(window.dispatch.padded_tokens))


def _real(value: int | None) -> float | None:
    return None if value is None else float(value)
