from __future__ import annotations

import threading

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from collector.rig import Rig
from replaywatch.collector.store import Store
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import ConfigurationError, StoreBusy, StoreError


def add(serial: int) -> object:
    def work(session: Session) -> int:
        row = {"s": serial, "k": f"digest-{serial}"}
        statement = "insert into batches (serial, key_digest, sent_ns, received_ns, shift_ns, windows, partition)"
        statement += " values (:s, :k, 0, 0, 0, 0, 0)"
        session.execute(text(statement), row)
        return serial

    return work


def test_work_that_fails_takes_nothing_else_with_it(rig: Rig) -> None:
    held = threading.Event()
    blocker = rig.writer.offer(lambda _: held.wait(5))
    good = rig.writer.offer(add(1))  # type: ignore[arg-type]
    bad = rig.writer.offer(add(1))  # type: ignore[arg-type]
    wrong = rig.writer.offer(lambda _: 1 / 0)
    other = rig.writer.offer(add(2))  # type: ignore[arg-type]
    held.set()
    assert blocker.result(5)
    assert (good.result(5), other.result(5)) == (1, 2)
    with pytest.raises(StoreError, match="refused"):
        bad.result(5)
    with pytest.raises(ZeroDivisionError):
        wrong.result(5)
    with rig.store.session() as session:
        assert session.scalar(text("select count(*) from batches")) == 2


def test_too_much_waiting_is_refused_rather_than_kept(store_url: str) -> None:
    store = Store.open(store_url)
    writer = Writer(store, 2)
    writer.start()
    held = threading.Event()
    started = threading.Event()

    def block(_: Session) -> None:
        started.set()
        held.wait(5)

    first = writer.offer(block)
    started.wait(5)
    waiting = [writer.offer(lambda _: None) for _ in range(2)]
    with pytest.raises(StoreBusy):
        writer.offer(lambda _: None)
    held.set()
    for future in (first, *waiting):
        future.result(5)
    writer.close()
    with pytest.raises(StoreError, match="shutting down"):
        writer.offer(lambda _: None)
    store.close()


def test_a_store_of_another_layout_is_refused(store_url: str) -> None:
    store = Store.open(store_url)
    with store.session() as session, session.begin():
        session.execute(text("update alembic_version set version_num = '9999'"))
    store.close()
    with pytest.raises(StoreError, match="layout 9999"):
        Store.open(store_url)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "nonsense", "oracle9://x", "mysql://x", "", "http://x"]
)
def test_a_store_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="store URL"):
        Store.open(url)


def test_a_store_that_cannot_be_opened_says_so_in_one_sentence(tmp_path: object) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open(f"sqlite:///{tmp_path}/missing/folder/x.db")


def test_numbers_of_deleted_batches_are_not_given_away_again(rig: Rig) -> None:
    first = rig.feed()
    with rig.store.session() as session, session.begin():
        session.execute(text("delete from batches"))
    second = rig.feed()
    assert first.serial is not None
    assert second.serial is not None
    assert second.serial > first.serial
