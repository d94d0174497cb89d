"""The tables of the store. Times are Unix nanoseconds; payloads are JSON in the wire form.

Nothing here is particular to SQLite. Sums of measurements are floating point, so that adding any of them up cannot
overflow.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Double, Index, Integer, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA_VERSION: Final = 1
_Serial = BigInteger().with_variant(Integer, "sqlite")
_Ns = BigInteger
# Without this SQLite gives the numbers of deleted rows away again; checkpoints and links rely on them.
_NEVER_REUSED: Final = {"sqlite_autoincrement": True}


class Base(DeclarativeBase):
    """Base of the tables."""


class SchemaRow(Base):
    """The one row that says which release laid the tables out."""

    __tablename__ = "replaywatch_schema"
    version: Mapped[int] = mapped_column(Integer, primary_key=True)


class BatchRow(Base):
    """A batch that was stored; its key makes a second copy harmless. `serial` orders what was stored."""

    __tablename__ = "batches"
    serial: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    key_digest: Mapped[str] = mapped_column(String(64), unique=True)
    sent_ns: Mapped[int] = mapped_column(_Ns)
    received_ns: Mapped[int] = mapped_column(_Ns, index=True)
    windows: Mapped[int] = mapped_column(Integer)
    __table_args__ = _NEVER_REUSED


class WorkloadRow(Base):
    """A workload, and the checkpoint of its lifetime: every window up to `through_serial` merged into one."""

    __tablename__ = "workloads"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    who: Mapped[str] = mapped_column(Text)
    first_seen_ns: Mapped[int] = mapped_column(_Ns)
    last_seen_ns: Mapped[int] = mapped_column(_Ns, index=True)
    through_serial: Mapped[int] = mapped_column(BigInteger, default=0)
    lifetime: Mapped[str | None] = mapped_column(Text, default=None)


class WindowRow(Base):
    """A window: what charts add up as columns, all of it as JSON."""

    __tablename__ = "windows"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    workload_id: Mapped[str] = mapped_column(String(16))
    batch_serial: Mapped[int] = mapped_column(BigInteger, index=True)
    start_ns: Mapped[int] = mapped_column(_Ns)
    end_ns: Mapped[int] = mapped_column(_Ns)
    received_ns: Mapped[int] = mapped_column(_Ns, index=True)
    config_id: Mapped[str | None] = mapped_column(String(64))
    full_steps: Mapped[float | None] = mapped_column(Double)
    piecewise_steps: Mapped[float | None] = mapped_column(Double)
    eager_steps: Mapped[float | None] = mapped_column(Double)
    timed_steps: Mapped[float | None] = mapped_column(Double)
    timed_ns: Mapped[float | None] = mapped_column(Double)
    kernels: Mapped[float | None] = mapped_column(Double)
    graph_kernels: Mapped[float | None] = mapped_column(Double)
    busy_ns: Mapped[float | None] = mapped_column(Double)
    span_ns: Mapped[float | None] = mapped_column(Double)
    real_tokens: Mapped[float | None] = mapped_column(Double)
    padded_tokens: Mapped[float | None] = mapped_column(Double)
    payload: Mapped[str] = mapped_column(Text)
    __table_args__ = (Index("windows_of_workload", "workload_id", "end_ns"),)


class SnapshotRow(Base):
    """A fingerprint or an engine configuration, by kind and id."""

    __tablename__ = "snapshots"
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    first_seen_ns: Mapped[int] = mapped_column(_Ns)
    payload: Mapped[str] = mapped_column(Text)


class IncidentRow(Base):
    """An incident: one detector's finding on one workload, from opening to closing.

    `open_key` names workload and detector while the incident is not closed, so that the database itself refuses a
    second one. `group_key` is what incidents of one rollout share: detector and engine configuration.
    """

    __tablename__ = "incidents"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    open_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    group_key: Mapped[str] = mapped_column(String(200), index=True)
    workload_id: Mapped[str] = mapped_column(String(16), index=True)
    workload_label: Mapped[str] = mapped_column(Text)
    detector: Mapped[str] = mapped_column(String(100))
    state: Mapped[str] = mapped_column(String(16), index=True)
    severity: Mapped[str] = mapped_column(String(8))
    worst_severity: Mapped[str] = mapped_column(String(8))
    opened_ns: Mapped[int] = mapped_column(_Ns, index=True)
    changed_ns: Mapped[int] = mapped_column(_Ns)
    closed_ns: Mapped[int | None] = mapped_column(_Ns)
    finding: Mapped[str] = mapped_column(Text)
    __table_args__ = _NEVER_REUSED


class IncidentEventRow(Base):
    """What happened to an incident, and when."""

    __tablename__ = "incident_events"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    incident_id: Mapped[int] = mapped_column(BigInteger, index=True)
    at_ns: Mapped[int] = mapped_column(_Ns)
    event: Mapped[str] = mapped_column(String(16))
    severity: Mapped[str] = mapped_column(String(8))
    note: Mapped[str] = mapped_column(Text)


class NotificationRow(Base):
    """A message on its way out, written in the transaction of the event that it tells of."""

    __tablename__ = "notifications"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    idempotency_key: Mapped[str] = mapped_column(String(64), unique=True)
    incident_id: Mapped[int] = mapped_column(BigInteger, index=True)
    event: Mapped[str] = mapped_column(String(16))
    body: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16), index=True)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    created_ns: Mapped[int] = mapped_column(_Ns)
    next_attempt_ns: Mapped[int] = mapped_column(_Ns)
    settled_ns: Mapped[int | None] = mapped_column(_Ns, default=None)
    last_error: Mapped[str | None] = mapped_column(Text, default=None)
