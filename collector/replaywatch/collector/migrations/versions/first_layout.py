"""The first layout: batches and windows, workloads, incidents with members, notifications, tokens, silences, audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
BY_DAY: dict[str, Any] = {"postgresql_partition_by": "RANGE (received_ns)"}


def _sums() -> Sequence[sa.Column[float]]:
    names = (
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
    return [sa.Column(name, sa.Double) for name in names]


def _lay_out_windows() -> None:
    op.create_table(
        "batches",
        sa.Column("serial", SERIAL, primary_key=True),
        sa.Column("key_digest", sa.String(64), nullable=False, unique=True),
        sa.Column("sent_ns", sa.BigInteger, nullable=False),
        sa.Column("received_ns", sa.BigInteger, nullable=False),
        sa.Column("shift_ns", sa.BigInteger, nullable=False),
        sa.Column("windows", sa.Integer, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("batches_of_partition", "batches", ["partition", "serial"])
    op.create_index("ix_batches_received_ns", "batches", ["received_ns"])
    op.create_table(
        "bodies",
        sa.Column("received_ns", sa.BigInteger, primary_key=True),
        sa.Column("serial", sa.BigInteger, primary_key=True),
        sa.Column("is_gzip", sa.Boolean, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        **BY_DAY,
    )
    op.create_table(
        "windows",
        sa.Column("received_ns", sa.BigInteger, primary_key=True),
        sa.Column("batch_serial", sa.BigInteger, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("workload_id", sa.String(16), nullable=False),
        sa.Column("start_ns", sa.BigInteger, nullable=False),
        sa.Column("end_ns", sa.BigInteger, nullable=False),
        *_sums(),
        **BY_DAY,
    )
    op.create_index("windows_of_workload", "windows", ["workload_id", "end_ns"])
    op.create_table(
        "hours",
        sa.Column("workload_id", sa.String(16), primary_key=True),
        sa.Column("hour_ns", sa.BigInteger, primary_key=True),
        sa.Column("windows", sa.Integer, nullable=False),
        sa.Column("merged", sa.LargeBinary, nullable=False),
        *_sums(),
    )
    op.create_index("hours_by_age", "hours", ["hour_ns"])
    op.create_table(
        "workloads",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("who", sa.LargeBinary, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("first_seen_ns", sa.BigInteger, nullable=False),
        sa.Column("last_seen_ns", sa.BigInteger, nullable=False),
        sa.Column("through_serial", sa.BigInteger, nullable=False),
        sa.Column("lifetime", sa.LargeBinary),
        sa.Column("sudden", sa.LargeBinary),
        sa.Column("viewed_ns", sa.BigInteger),
        sa.Column("view", sa.LargeBinary),
    )
    op.create_index("ix_workloads_last_seen_ns", "workloads", ["last_seen_ns"])
    op.create_index("ix_workloads_partition", "workloads", ["partition"])
    op.create_index("ix_workloads_viewed_ns", "workloads", ["viewed_ns"])
    op.create_table(
        "snapshots",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("first_seen_ns", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
    )


def _lay_out_incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("open_key", sa.String(200), unique=True),
        sa.Column("group_key", sa.String(200), nullable=False),
        sa.Column("workload_id", sa.String(16), nullable=False),
        sa.Column("workload_label", sa.Text, nullable=False),
        sa.Column("detector", sa.String(100), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("severity", sa.String(8), nullable=False),
        sa.Column("worst_severity", sa.String(8), nullable=False),
        sa.Column("opened_ns", sa.BigInteger, nullable=False),
        sa.Column("changed_ns", sa.BigInteger, nullable=False),
        sa.Column("closed_ns", sa.BigInteger),
        sa.Column("finding", sa.Text, nullable=False),
        sa.Column("members", sa.Integer, nullable=False),
        sa.Column("open_members", sa.Integer, nullable=False),
        sa.Column("told_members", sa.Integer, nullable=False),
        sa.Column("acknowledged_ns", sa.BigInteger),
        sa.Column("acknowledged_by", sa.String(100)),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_incidents_changed_ns", "incidents", ["changed_ns"])
    op.create_index("ix_incidents_group_key", "incidents", ["group_key"])
    op.create_index("ix_incidents_opened_ns", "incidents", ["opened_ns"])
    op.create_index("ix_incidents_state", "incidents", ["state"])
    op.create_table(
        "incident_members",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("incident_id", sa.BigInteger, nullable=False),
        sa.Column("open_key", sa.String(200), unique=True),
        sa.Column("workload_id", sa.String(16), nullable=False),
        sa.Column("workload_label", sa.Text, nullable=False),
        sa.Column("who", sa.LargeBinary, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("detector", sa.String(100), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("severity", sa.String(8), nullable=False),
        sa.Column("worst_severity", sa.String(8), nullable=False),
        sa.Column("opened_ns", sa.BigInteger, nullable=False),
        sa.Column("changed_ns", sa.BigInteger, nullable=False),
        sa.Column("closed_ns", sa.BigInteger),
        sa.Column("finding", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_incident_members_incident_id", "incident_members", ["incident_id"])
    op.create_index("ix_incident_members_state", "incident_members", ["state"])
    op.create_index("ix_incident_members_workload_id", "incident_members", ["workload_id"])
    op.create_table(
        "incident_events",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("incident_id", sa.BigInteger, nullable=False),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("severity", sa.String(8), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("ix_incident_events_incident_id", "incident_events", ["incident_id"])
    op.create_table(
        "notifications",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("idempotency_key", sa.String(64), nullable=False, unique=True),
        sa.Column("incident_id", sa.BigInteger, nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
        sa.Column("next_attempt_ns", sa.BigInteger, nullable=False),
        sa.Column("settled_ns", sa.BigInteger),
        sa.Column("last_error", sa.Text),
    )
    op.create_index("ix_notifications_incident_id", "notifications", ["incident_id"])
    op.create_index("ix_notifications_state", "notifications", ["state"])


def _lay_out_people() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(100), nullable=False, unique=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("windows_per_second", sa.Double),
        sa.Column("windows_per_day", sa.BigInteger),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
        sa.Column("revoked_ns", sa.BigInteger),
    )
    op.create_table(
        "silences",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("matchers", sa.Text, nullable=False),
        sa.Column("starts_ns", sa.BigInteger, nullable=False),
        sa.Column("ends_ns", sa.BigInteger, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.String(100), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_silences_ends_ns", "silences", ["ends_ns"])
    op.create_table(
        "audit",
        sa.Column("id", SERIAL, primary_key=True),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(100), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at_ns", "audit", ["at_ns"])
    op.create_table(
        "checkpoints",
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("through_serial", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "workers",
        sa.Column("owner", sa.String(64), primary_key=True),
        sa.Column("until_ns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "leases",
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("until_ns", sa.BigInteger, nullable=False),
    )


def upgrade() -> None:
    """Lay out everything."""
    _lay_out_windows()
    _lay_out_incidents()
    _lay_out_people()
