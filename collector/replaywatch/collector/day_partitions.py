"""PostgreSQL keeps windows and bodies in one partition a day, so that old days go by dropping a table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

DAY_NS: Final = 24 * 3600 * 10**9
TABLES: Final = ("windows", "bodies")
PARTITION_LOCK: Final = 7_411_930_002


def day_of(unix_ns: int) -> int:
    """Number of the UTC day."""
    return unix_ns // DAY_NS


def add_days(session: Session, days: Iterable[int]) -> None:
    """Make the partitions of some days where they are missing. PostgreSQL only."""
    session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PARTITION_LOCK})
    for day in days:
        for table in TABLES:
            # A table cannot be named by a bound parameter; both names are made here, from a constant and a number.
            session.execute(
                text(
                    f"CREATE TABLE IF NOT EXISTS {_name(table, day)} PARTITION OF {table} "
                    f"FOR VALUES FROM ({day * DAY_NS}) TO ({(day + 1) * DAY_NS})"
                )
            )


def drop_days(session: Session, before_ns: int) -> int:
    """Drop the partitions that end before a time; how many. PostgreSQL only."""
    query = text(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname IN ('windows', 'bodies') "
        "AND p.relnamespace = current_schema()::regnamespace"
    )
    names = set(session.scalars(query))
    last = day_of(before_ns) - 1
    old = sorted(n for n in names if int(n.rsplit("_", 1)[1]) <= last)
    for name in old:
        session.execute(text(f"DROP TABLE {name}"))
    return len(old)


def _name(table: str, day: int) -> str:
    """Such as `windows_20261129_20786`: the date for people, the number of the day for programs."""
    stamp = datetime.fromtimestamp(day * 86400, timezone.utc)
    return f"{table}_{stamp:%Y%m%d}_{day}"
