from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from collector.postgres import Postgres
from replaywatch.collector.leases import LeaseLost, Leases
from replaywatch.collector.store import Store
from replaywatch.collector.worker import Worker

PARTITIONS, TTL_NS = 4, 15 * 10**9


@pytest.fixture
def store(database: Postgres) -> Iterator[Store]:
    it = Store.open(database.database())
    yield it
    it.close()


def leases(store: Store, owner: str, ttl_ns: int = TTL_NS) -> Leases:
    it = Leases(store, owner, PARTITIONS, ttl_ns)
    it.prepare()
    return it


def take_all(it: Leases) -> dict[int, int]:
    found = {}
    while (taken := it.take()) is not None:
        found[taken[0]] = taken[1]
    return found


class NoShare:
    """Stands where a share would be."""

    is_alive = True

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition

    def ask_to_stop(self) -> None: ...

    def stop(self, *, is_lost: bool) -> None: ...


def test_what_was_given_back_stays_so_although_its_last_owner_goes_on_renewing(store: Store) -> None:
    first, second = leases(store, "first"), leases(store, "second")
    held = take_all(first)
    assert len(held) == PARTITIONS
    first.give_back({2: held[2], 3: held[3]})
    assert first.renew()[0] == {0: held[0], 1: held[1]}
    assert take_all(second) == {2: held[2] + 1, 3: held[3] + 1}
    assert first.renew()[0] == {0: held[0], 1: held[1]}


def test_a_lease_without_work_is_given_back(store: Store) -> None:
    first, second = leases(store, "first"), leases(store, "second")
    take_all(first)  # as before a failure that this worker does not know of
    worker = Worker(first, NoShare)  # type: ignore[arg-type]
    worker.renew()
    worker.turn()
    assert [s.partition for s in worker.shares] == [0, 1, 2, 3]
    worker._shares.clear()
    second.renew()
    worker.renew()
    worker.turn()
    assert len(worker.shares) == 2
    assert len(take_all(second)) == 2


def test_workers_share_evenly_when_one_comes_and_when_one_goes(store: Store) -> None:
    workers = [Worker(leases(store, name), NoShare) for name in ("a", "b")]  # type: ignore[arg-type]
    workers[0].renew()
    workers[0].turn()
    assert len(workers[0].shares) == PARTITIONS
    for _ in range(2):
        for worker in workers:
            worker.renew()
            worker.turn()
        workers[0].renew()  # between giving back and the other's taking
    assert sorted(s.partition for w in workers for s in w.shares) == [0, 1, 2, 3]
    assert [len(w.shares) for w in workers] == [2, 2]
    workers[0].close()
    workers[1].renew()
    workers[1].turn()
    assert len(workers[1].shares) == PARTITIONS


def test_a_lost_lease_forbids_writing(store: Store) -> None:
    first, second = leases(store, "first", ttl_ns=0), leases(store, "second")
    taken = first.take()
    assert taken is not None
    while second.take() is not None:
        pass
    with store.writing() as session, session.begin(), pytest.raises(LeaseLost):
        first.guard(*taken)(session)
    with store.writing() as session, session.begin():
        second.guard(taken[0], taken[1] + 1)(session)
        assert session.scalar(text("SHOW idle_in_transaction_session_timeout")) == "15s"
