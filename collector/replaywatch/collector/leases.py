"""Leases on partitions, in PostgreSQL: who judges which share of the fleet, and takeover when a worker dies.

Times are the database's, so workers' clocks do not matter. A lease's epoch is checked, with a row lock, in every
transaction that a worker writes for a partition: one that lost it cannot write any more, however late it notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

from replaywatch.collector.store import Store
from replaywatch.collector.writer import Guard
from replaywatch.contract.errors import ConfigurationError, StoreError

_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1e9)::bigint"
_TAKE: Final = text(
    f"UPDATE leases SET owner = :owner, epoch = epoch + 1, until_ns = {_NOW} + :ttl_ns WHERE partition = ("
    f"SELECT partition FROM leases WHERE until_ns < {_NOW} ORDER BY partition LIMIT 1 FOR UPDATE SKIP LOCKED"
    ") RETURNING partition, epoch"
)
_RENEW: Final = text(f"UPDATE leases SET until_ns = {_NOW} + :ttl_ns WHERE owner = :owner RETURNING partition, epoch")
_ALIVE: Final = text(
    f"INSERT INTO workers (owner, until_ns) VALUES (:owner, {_NOW} + :ttl_ns) "
    "ON CONFLICT (owner) DO UPDATE SET until_ns = excluded.until_ns"
)
# Should this process vanish in the middle of the transaction, its locks go with it before the lease runs out.
_HELD: Final = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :idle_ms, true) "
    "FROM leases WHERE partition = :partition AND owner = :owner AND epoch = :epoch FOR SHARE"
)


class LeaseLost(StoreError):
    """Another worker has the partition now."""


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of one worker. `ttl_ns`: how long a lease holds without being renewed."""

    store: Store
    owner: str
    partitions: int
    ttl_ns: int

    def prepare(self) -> None:
        """Make the rows of all partitions. Raises: ConfigurationError where another number was used before."""
        with self.store.reading() as session, session.begin():
            session.execute(
                text(
                    "INSERT INTO leases (partition, owner, epoch, until_ns) SELECT n, '', 0, 0 "
                    "FROM generate_series(0, :last) AS n WHERE NOT EXISTS (SELECT 1 FROM leases) ON CONFLICT DO NOTHING"
                ),
                {"last": self.partitions - 1},
            )
            found = session.scalar(text("SELECT count(*) FROM leases"))
        if found != self.partitions:
            raise ConfigurationError(f"the store was set up for {found} partitions; give --partitions {found}")

    def renew(self) -> tuple[dict[int, int], int]:
        """Hold on to what is held; epochs by partition, and the fair number of partitions. Raises: StoreError."""
        given = {"owner": self.owner, "ttl_ns": self.ttl_ns}
        with self.store.reading() as session, session.begin():
            session.execute(_ALIVE, given)
            session.execute(text(f"DELETE FROM workers WHERE until_ns < {_NOW}"))
            workers = session.scalar(text("SELECT count(*) FROM workers")) or 1
            held = {row[0]: row[1] for row in session.execute(_RENEW, given)}
        return held, -(-self.partitions // workers)

    def take(self) -> tuple[int, int] | None:
        """Take a partition that nobody holds: its number and epoch; None when there is none. Raises: StoreError."""
        with self.store.reading() as session, session.begin():
            row = session.execute(_TAKE, {"owner": self.owner, "ttl_ns": self.ttl_ns}).first()
        return None if row is None else (row[0], row[1])

    def give_back(self, epochs: Mapping[int, int]) -> None:
        """Let others have some partitions now; they have no owner then, so that no renewal takes them back.

        Raises: StoreError.
        """
        with self.store.reading() as session, session.begin():
            for partition, epoch in epochs.items():
                session.execute(
                    text(
                        "UPDATE leases SET until_ns = 0, owner = '' "
                        "WHERE partition = :p AND owner = :owner AND epoch = :epoch"
                    ),
                    {"p": partition, "owner": self.owner, "epoch": epoch},
                )

    def leave(self) -> None:
        """No longer be counted among the workers. Raises: StoreError."""
        with self.store.reading() as session, session.begin():
            session.execute(text("DELETE FROM workers WHERE owner = :owner"), {"owner": self.owner})

    def guard(self, partition: int, epoch: int) -> Guard:
        """What forbids a transaction once the partition is lost."""
        given = {"partition": partition, "owner": self.owner, "epoch": epoch, "idle_ms": str(self.ttl_ns // 10**6)}

        def check(session: Session) -> None:
            if session.scalar(_HELD, given) is None:
                raise LeaseLost(f"partition {partition} has another worker now")

        return check
