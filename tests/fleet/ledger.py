"""What arrived at the end, read from the database itself and held against what was acknowledged at the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from replaywatch.collector.ingest import key_digest


@dataclass(frozen=True)
class Account:
    """Batches acknowledged, missing and stored; windows acknowledged, stored and stored twice."""

    batches: int
    missing: int
    windows: int
    stored_windows: int
    twice: int
    unasked: int


def account(database: str, acknowledged: Mapping[str, int], partitions: int) -> Account:
    """Compare. A batch lies in the store once for each partition that its windows belong to."""
    with psycopg.connect(database) as connection:
        stored = dict(connection.execute("SELECT key_digest, windows FROM batches").fetchall())
        twice = connection.execute("SELECT count(*) - count(DISTINCT (batch_serial, position)) FROM windows").fetchone()
        rows = connection.execute("SELECT count(*) FROM windows").fetchone()
    digests = {key: [key_digest(f"{key}/{p}") for p in range(partitions)] for key in acknowledged}
    found = {key: sum(stored.get(d, 0) for d in ds) for key, ds in digests.items()}
    known = {d for ds in digests.values() for d in ds}
    assert twice is not None
    assert rows is not None
    return Account(
        batches=len(acknowledged),
        missing=sum(found[key] != windows for key, windows in acknowledged.items()),
        windows=sum(acknowledged.values()),
        stored_windows=rows[0],
        twice=twice[0],
        unasked=sum(n for d, n in stored.items() if d not in known),
    )


def lifetime_steps(database: str) -> tuple[int, int]:
    """Windows that the checkpoints say they include, and windows that are stored: equal once everybody has written."""
    with psycopg.connect(database) as connection:
        hours = connection.execute("SELECT coalesce(sum(windows), 0)::bigint FROM hours").fetchone()
        rows = connection.execute("SELECT count(*) FROM windows").fetchone()
    assert hours is not None
    assert rows is not None
    return hours[0], rows[0]


def open_incidents(database: str) -> list[tuple[str, str, int, int]]:
    """Detector, state, members and open members of all incidents."""
    with psycopg.connect(database) as connection:
        return connection.execute("SELECT detector, state, members, open_members FROM incidents").fetchall()
