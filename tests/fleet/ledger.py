"""What arrived at the end, read from the database itself and held against what was acknowledged at the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from replaywatch.collector.ingest import key_digest
from replaywatch.collector.remembered import recall
from replaywatch.contract.window import Workload


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
        stored: dict[str, int] = dict(connection.execute("SELECT key_digest, windows FROM batches").fetchall())
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


def stored_starts(database: str, pods: str) -> Counter[int]:
    """How often each beginning of a window is stored, of the workloads whose pods begin with some name."""
    with psycopg.connect(database) as connection:
        known = connection.execute("SELECT id, who FROM workloads").fetchall()
        mine = [
            key for key, who in known if ((recall(Workload, bytes(who), key) or Workload()).pod or "").startswith(pods)
        ]
        rows = connection.execute("SELECT start_ns FROM windows WHERE workload_id = ANY(%s)", (mine,)).fetchall()
    return Counter(row[0] for row in rows)


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


def owners(database: str) -> set[str]:
    """Workers whose lease on some partition holds now."""
    now = "(extract(epoch FROM clock_timestamp()) * 1e9)::bigint"
    with psycopg.connect(database) as connection:
        rows = connection.execute(f"SELECT DISTINCT owner FROM leases WHERE until_ns > {now}".encode()).fetchall()
    return {row[0] for row in rows}
