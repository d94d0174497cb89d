"""The tables of the store. Times are Unix nanoseconds; the folder `migrations` lays them out.

What a sender posted is kept as it came (`BodyRow`), once per batch; windows are rows with the sums that charts need.
Sums of measurements are floating point, so that adding any of them up cannot overflow. On PostgreSQL `windows` and
`bodies` are partitioned by day of `received_ns`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Double, Index, Integer, LargeBinary, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_Serial = BigInteger().with_variant(Integer, "sqlite")
_Ns = BigInteger
# Without this SQLite gives the numbers of deleted rows away again; checkpoints and links rely on them.
_NEVER_REUSED: Final = {"sqlite_autoincrement": True}


class Base(DeclarativeBase):
    """Base of the tables."""


class BatchRow(Base):
    """A batch that was stored; its key makes a second copy harmless. `serial` orders what was stored.

    `partition` is the share of the fleet it belongs to where workers share one; `shift_ns` was added to the times of
    its windows, because the sender's clock was off.
    """

    __tablename__ = "batches"
    serial: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    key_digest: Mapped[str] = mapped_column(String(64), unique=True)
    sent_ns: Mapped[int] = mapped_column(_Ns)
    received_ns: Mapped[int] = mapped_column(_Ns, index=True)
    shift_ns: Mapped[int] = mapped_column(_Ns, default=0)
    windows: Mapped[int] = mapped_column(Integer)
    partition: Mapped[int] = mapped_column(Integer, default=0)
    __table_args__ = (Index("batches_of_partition", "partition", "serial"), _NEVER_REUSED)


class BodyRow(Base):
    """What the sender posted, compressed as `is_gzip` says."""

    __tablename__ = "bodies"
    received_ns: Mapped[int] = mapped_column(_Ns, primary_key=True)
    serial: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    is_gzip: Mapped[bool] = mapped_column(Boolean)
    body: Mapped[bytes] = mapped_column(LargeBinary)


class Sums:
    """What charts add up."""

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


class WindowRow(Sums, Base):
    """A window, by its place in its batch."""

    __tablename__ = "windows"
    received_ns: Mapped[int] = mapped_column(_Ns, primary_key=True)
    batch_serial: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    workload_id: Mapped[str] = mapped_column(String(16))
    start_ns: Mapped[int] = mapped_column(_Ns)
    end_ns: Mapped[int] = mapped_column(_Ns)
    __table_args__ = (Index("windows_of_workload", "workload_id", "end_ns"),)


class HourRow(Sums, Base):
    """All windows of a workload that end within an hour, as one: what stays when the windows themselves are deleted."""

    __tablename__ = "hours"
    workload_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    hour_ns: Mapped[int] = mapped_column(_Ns, primary_key=True)
    windows: Mapped[int] = mapped_column(Integer)
    merged: Mapped[bytes] = mapped_column(LargeBinary)
    __table_args__ = (Index("hours_by_age", "hour_ns"),)


class WorkloadRow(Base):
    """A workload, and the checkpoint of its lifetime: every window up to `through_serial` merged into one.

    `sudden` is what its windows up to then taught the detector of sudden changes; `view` what the last judgement said,
    for processes that do not judge it themselves.
    """

    __tablename__ = "workloads"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    who: Mapped[bytes] = mapped_column(LargeBinary)
    partition: Mapped[int] = mapped_column(Integer, default=0, index=True)
    first_seen_ns: Mapped[int] = mapped_column(_Ns)
    last_seen_ns: Mapped[int] = mapped_column(_Ns, index=True)
    through_serial: Mapped[int] = mapped_column(BigInteger, default=0)
    lifetime: Mapped[bytes | None] = mapped_column(LargeBinary, default=None)
    sudden: Mapped[bytes | None] = mapped_column(LargeBinary, default=None)
    viewed_ns: Mapped[int | None] = mapped_column(_Ns, default=None, index=True)
    view: Mapped[bytes | None] = mapped_column(LargeBinary, default=None)


class SnapshotRow(Base):
    """A fingerprint or an engine configuration, by kind and id."""

    __tablename__ = "snapshots"
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    first_seen_ns: Mapped[int] = mapped_column(_Ns)
    payload: Mapped[bytes] = mapped_column(LargeBinary)


class IncidentRow(Base):
    """An incident: what one detector found on workloads that share a configuration, from opening to closing.

    `open_key` is the group's key while the incident is not closed, so that the database itself refuses a second one.
    Workload and finding are those of the worst member; `told_members` is how many people were told of.
    """

    __tablename__ = "incidents"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    open_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    group_key: Mapped[str] = mapped_column(String(200), index=True)
    workload_id: Mapped[str] = mapped_column(String(16))
    workload_label: Mapped[str] = mapped_column(Text)
    detector: Mapped[str] = mapped_column(String(100))
    state: Mapped[str] = mapped_column(String(16), index=True)
    severity: Mapped[str] = mapped_column(String(8))
    worst_severity: Mapped[str] = mapped_column(String(8))
    opened_ns: Mapped[int] = mapped_column(_Ns, index=True)
    changed_ns: Mapped[int] = mapped_column(_Ns, index=True)
    closed_ns: Mapped[int | None] = mapped_column(_Ns)
    finding: Mapped[str] = mapped_column(Text)
    members: Mapped[int] = mapped_column(Integer, default=0)
    open_members: Mapped[int] = mapped_column(Integer, default=0)
    told_members: Mapped[int] = mapped_column(Integer, default=0)
    acknowledged_ns: Mapped[int | None] = mapped_column(_Ns, default=None)
    acknowledged_by: Mapped[str | None] = mapped_column(String(100), default=None)
    __table_args__ = _NEVER_REUSED


class MemberRow(Base):
    """One workload's part in an incident. `open_key` names workload and detector while it is not closed."""

    __tablename__ = "incident_members"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    incident_id: Mapped[int] = mapped_column(BigInteger, index=True)
    open_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    workload_id: Mapped[str] = mapped_column(String(16), index=True)
    workload_label: Mapped[str] = mapped_column(Text)
    who: Mapped[bytes] = mapped_column(LargeBinary)
    partition: Mapped[int] = mapped_column(Integer, default=0)
    detector: Mapped[str] = mapped_column(String(100))
    state: Mapped[str] = mapped_column(String(16), index=True)
    severity: Mapped[str] = mapped_column(String(8))
    worst_severity: Mapped[str] = mapped_column(String(8))
    opened_ns: Mapped[int] = mapped_column(_Ns)
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


class TokenRow(Base):
    """A token that people or agents show; only the digest of its secret is kept."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    digest: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[str] = mapped_column(String(64))
    windows_per_second: Mapped[float | None] = mapped_column(Double, default=None)
    windows_per_day: Mapped[int | None] = mapped_column(BigInteger, default=None)
    created_ns: Mapped[int] = mapped_column(_Ns)
    revoked_ns: Mapped[int | None] = mapped_column(_Ns, default=None)


class SilenceRow(Base):
    """A time during which nobody is told of matching incidents. `matchers` is a JSON object of names and patterns."""

    __tablename__ = "silences"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(String(16))
    matchers: Mapped[str] = mapped_column(Text)
    starts_ns: Mapped[int] = mapped_column(_Ns)
    ends_ns: Mapped[int] = mapped_column(_Ns, index=True)
    comment: Mapped[str] = mapped_column(Text)
    created_ns: Mapped[int] = mapped_column(_Ns)
    created_by: Mapped[str] = mapped_column(String(100))
    __table_args__ = _NEVER_REUSED


class AuditRow(Base):
    """Who changed what, and when."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(_Serial, primary_key=True, autoincrement=True)
    at_ns: Mapped[int] = mapped_column(_Ns, index=True)
    who: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(String(200))
    detail: Mapped[str] = mapped_column(Text)
    __table_args__ = _NEVER_REUSED


class CheckpointRow(Base):
    """How far the lifetimes of a partition's workloads reach: all of its batches up to `through_serial`."""

    __tablename__ = "checkpoints"
    partition: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    through_serial: Mapped[int] = mapped_column(BigInteger)


class WorkerRow(Base):
    """A worker that lives, so that the others know how many share the fleet."""

    __tablename__ = "workers"
    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    until_ns: Mapped[int] = mapped_column(_Ns)


class LeaseRow(Base):
    """Which worker judges a partition of the fleet. `epoch` grows with each change of hands, and fences the last."""

    __tablename__ = "leases"
    partition: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    owner: Mapped[str] = mapped_column(String(64))
    epoch: Mapped[int] = mapped_column(BigInteger)
    until_ns: Mapped[int] = mapped_column(_Ns)
