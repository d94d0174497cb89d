"""Backups by the databases' own means, taken while a collector writes, and collectors that go on from them."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, body, eager_window, workload
from collector.polling import until
from collector.postgres import Postgres, program
from replaywatch.collector.serve import CollectorHandle


@contextmanager
def flood(handle: CollectorHandle) -> Iterator[Callable[[], int]]:
    """Sends batches one after the other; gives how many were acknowledged."""
    done = [0]
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            assert post(handle, f"batch-{done[0]}") is False
            done[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        stop.set()
        thread.join()


def post(handle: CollectorHandle, key: str) -> bool:
    """Whether the batch of a key was there already."""
    window = eager_window(time.time_ns() - 6 * SECOND, random.Random(1), workload("pod-a"))
    answer = web.post(f"{handle.url}/v1/batches", content=body([window], key), headers=HEADERS)
    assert answer.status_code == 200
    return bool(answer.json()["duplicate"])


def goes_on(handle: CollectorHandle, acknowledged: int) -> None:
    """A collector on a restored copy knows every batch from before the backup, its incident, and takes new ones."""
    assert all(post(handle, f"batch-{n}") for n in range(acknowledged))
    incidents = web.get(f"{handle.url}/v1/incidents?detector=disabled").json()["incidents"]
    assert [i["state"] for i in incidents] == ["open"]
    assert post(handle, "new") is False
    until(lambda: web.get(f"{handle.url}/readyz").status_code == 200, 40)


def is_open(handle: CollectorHandle) -> bool:
    return bool(web.get(f"{handle.url}/v1/incidents?detector=disabled").json()["incidents"])


def test_a_copy_by_sqlites_backup_is_whole_while_the_collector_writes(start: Start, tmp_path: Path) -> None:
    handle = start(store=f"sqlite:///{tmp_path}/first.db")
    with flood(handle) as acknowledged:
        until(lambda: acknowledged() > 20 and is_open(handle), 40)
        before = acknowledged()
        # What `sqlite3 FILE ".backup COPY"` does.
        with (
            closing(sqlite3.connect(tmp_path / "first.db")) as source,
            closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
        ):
            source.backup(copy, pages=8)
            assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    handle.stop()
    goes_on(start(store=f"sqlite:///{tmp_path}/copy.db"), before)


def test_a_dump_by_pg_dump_is_whole_while_the_collector_writes(
    start: Start, postgres: Postgres, tmp_path: Path
) -> None:
    url, dump = postgres.database("t1"), tmp_path / "dump.sql"
    handle = start(store=url)
    with flood(handle) as acknowledged:
        until(lambda: acknowledged() > 20 and is_open(handle), 40)
        before = acknowledged()
        subprocess.run([program("pg_dump"), "--file", str(dump), url], check=True, capture_output=True)
    handle.stop()
    restored = postgres.database()
    psql = [program("psql"), "--quiet", "--set", "ON_ERROR_STOP=1", "--file", str(dump), restored]
    subprocess.run(psql, check=True, capture_output=True)
    goes_on(start(store=restored), before)
