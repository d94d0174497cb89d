"""Connections to PostgreSQL that end in the middle of a commit, before it or after it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from select import select
from typing import Literal
from urllib.parse import urlsplit

import pytest
from sqlalchemy import func
from sqlalchemy import select as query

from collector.polling import until
from collector.rig import Rig
from collector.test_batches import WINDOW
from replaywatch.collector.ingest import StoredBatch
from replaywatch.collector.tables import BatchRow, IncidentRow, WindowRow
from replaywatch.contract.errors import StoreError

Fault = Literal["", "question", "answer"]


class Wire:
    """A proxy before PostgreSQL. `fault`: at the next commit, lose the question, or only the answer to it.

    While `is_away`, and from a fault on where `stays_away`, it takes nobody.
    """

    def __init__(self, port: int) -> None:
        self.fault: Fault = ""
        self.faults = 0
        self.is_away = self.stays_away = False
        self._behind = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.05)
        self.port: int = self._listening.getsockname()[1]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            with suppress(TimeoutError):
                front, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._carry, args=(front,)))
                self._threads[-1].start()

    def _carry(self, front: socket.socket) -> None:
        """Carry bytes both ways until an end or a fault."""
        muted = False
        with front, socket.create_connection(("127.0.0.1", self._behind)) as back, suppress(OSError):
            while not self._ended.is_set() and not self.is_away:
                for source in select([front, back], [], [], 0.05)[0]:
                    part = source.recv(1 << 16)
                    if source is front and b"COMMIT" in part and self.fault:
                        fault, self.fault = self.fault, ""
                        self.faults += 1
                        self.is_away = self.stays_away
                        if fault == "question":
                            return
                        muted = True
                    if not part or (source is back and muted):
                        return
                    (back if source is front else front).sendall(part)
                    if muted:  # until the server has done it
                        back.recv(1 << 16)
                        return


@pytest.fixture
def wire(postgres_url: str) -> Iterator[Wire]:
    it = Wire(urlsplit(postgres_url).port or 0)
    yield it
    it.close()


@pytest.fixture
def rig(wire: Wire, postgres_url: str) -> Iterator[Rig]:
    parts = urlsplit(postgres_url)
    it = Rig(parts._replace(netloc=f"tester@127.0.0.1:{wire.port}").geturl())
    yield it
    it.stop()


def count(rig: Rig, table: type) -> int:
    with rig.store.session() as session:
        return session.scalar(query(func.count()).select_from(table)) or 0


def test_a_batch_whose_commit_was_not_answered_is_taken_for_what_it_is(rig: Rig, wire: Wire) -> None:
    rig.feed(WINDOW, key="before")
    wire.fault = "answer"
    stored = rig.feed(WINDOW, key="doubtful")
    assert wire.faults == 1
    assert not stored.is_duplicate
    assert rig.inbox.waiting == 2
    assert rig.feed(WINDOW, key="doubtful").is_duplicate
    assert rig.inbox.waiting == 2
    assert count(rig, WindowRow) == 2


def test_a_batch_whose_commit_never_arrived_is_refused_and_stored_when_it_comes_again(rig: Rig, wire: Wire) -> None:
    wire.fault = "question"
    with pytest.raises(StoreError, match="could not commit"):
        rig.feed(WINDOW, key="doubtful")
    assert rig.inbox.waiting == 0
    assert not rig.feed(WINDOW, key="doubtful").is_duplicate
    assert (rig.inbox.waiting, count(rig, BatchRow)) == (1, 1)


@pytest.mark.parametrize("fault", ["question", "answer"])
def test_an_opening_whose_commit_was_not_answered_opens_one_incident(rig: Rig, wire: Wire, fault: Fault) -> None:
    rig.tick("page")
    rig.judge.says = "page"
    rig.clock.advance(5)
    rig.feed(WINDOW)
    rig.store.answers()  # the pool has a connection again, so that the fault meets the moves themselves
    wire.fault = fault
    with suppress(StoreError):
        rig.detection.tick()
    assert wire.faults == 1
    rig.tick("page", ticks=3)
    assert count(rig, IncidentRow) == 1
    (incident,) = rig.incidents("open")
    assert incident.open_members == 1


def test_a_store_that_is_away_during_the_doubt_is_asked_when_it_is_back(rig: Rig, wire: Wire) -> None:
    wire.fault, wire.stays_away = "answer", True
    found: list[StoredBatch] = []
    thread = threading.Thread(target=lambda: found.append(rig.feed(WINDOW, key="doubtful")))
    thread.start()
    until(lambda: wire.faults == 1)
    time.sleep(0.7)
    assert not found
    wire.is_away = False
    thread.join(20)
    assert [f.is_duplicate for f in found] == [False]
