"""Faults beyond kills: cables pulled, disks full, batches twice and out of order. Counted at the source and the end."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector import web
from collector.disks import MIB, NoDisk, SmallDisk
from collector.material import HEADERS
from collector.material import batch as batch_of
from collector.polling import until
from collector.postgres import NoPostgres, Postgres
from fleet import cut
from fleet.conftest import Begin
from fleet.ledger import account, lifetime_steps
from fleet.nats_cluster import NatsCluster, NoNats
from fleet.processes import Process
from fleet.senders import Sender, Senders, fleet_workload
from replaywatch.contract.wire import encode

pytestmark = pytest.mark.slow
GPUS, MODELS, PARTITIONS = 4, 6, 4


def senders_of(urls: list[str], count: int, pause_seconds: float = 0.2) -> Senders:
    nodes = [Sender(n, urls, [fleet_workload(n, g, MODELS) for g in range(GPUS)]) for n in range(count)]
    return Senders(nodes, 2, pause_seconds)


def is_whole(url: str, senders: Senders, workers: list[Process]) -> None:
    """Everything that was acknowledged is stored once and in the hourly sums."""
    until(lambda: account(url, senders.acknowledged, PARTITIONS).missing == 0, 60)
    for worker in workers:
        worker.stop()
    found = account(url, senders.acknowledged, PARTITIONS)
    assert (found.missing, found.twice, found.unasked) == (0, 0, 0)
    assert lifetime_steps(url) == (found.windows, found.windows)


def test_cables_pulled_between_hosts_lose_nothing_and_double_nothing() -> None:
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, str(Path(cut.__file__))],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    if done.returncode == cut.SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost, nothing twice" in done.stdout


def test_batches_that_come_twice_and_in_any_order_count_once(begin: Begin, database: Postgres) -> None:
    urls, workers = [begin("ingest").url for _ in range(2)], [begin("worker") for _ in range(2)]
    senders = senders_of(urls, 12)
    rng, now = random.Random(3), time.time_ns()
    posts = []
    for sender in senders.senders:
        for turn in range(8):
            key, windows = f"n{sender.node}-r{turn}", sender.windows(now - turn * 5 * 10**9)
            sender.acknowledged[key] = len(windows)
            body = gzip.compress(encode(batch_of(windows, key, now)), 1)
            posts += [body] * rng.choice((1, 2, 3))
    rng.shuffle(posts)

    def post(body: bytes) -> int:
        return web.post(f"{rng.choice(urls)}/v1/batches", content=body, headers=HEADERS).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(post, posts)) == {200}
    assert len(posts) > 1.5 * len(senders.acknowledged)
    is_whole(database.url("t1"), senders, workers)


def test_without_a_quorum_of_the_bus_batches_are_refused_and_taken_later(
    begin: Begin, database: Postgres, cluster: NatsCluster
) -> None:
    ingest, worker = begin("ingest"), begin("worker")
    senders = senders_of([ingest.url], 8)
    senders.start()
    until(lambda: len(senders.acknowledged) > 20, 40)
    cluster.kill_node(0)
    cluster.kill_node(1)
    time.sleep(6)  # what is under way is answered by then
    before = len(senders.acknowledged)
    attempts = sum(s.attempts for s in senders.senders)
    until(lambda: sum(s.attempts for s in senders.senders) > attempts + 1, 30)
    assert len(senders.acknowledged) == before
    cluster.start_node(0)
    until(lambda: len(senders.acknowledged) > before + 20, 60)
    cluster.start_node(1)
    senders.stop()
    is_whole(database.url("t1"), senders, [worker])


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    """Not in pytest's own folder, which is closed to the user that PostgreSQL runs as."""
    with tempfile.TemporaryDirectory(prefix="replaywatch-disk-") as folder:
        Path(folder).chmod(0o755)
        try:
            with SmallDisk(Path(folder) / "disk", 192 * MIB) as it:
                yield it
        except NoDisk as error:
            pytest.skip(str(error))


class Small:
    """A fleet of one ingest process and one worker beside engines of which one lies on a small disk."""

    def __init__(self, stack: ExitStack, folder: Path, database: Postgres, cluster: NatsCluster) -> None:
        self.database, self.cluster = database, cluster
        stack.callback(database.stop)
        database.start()
        stack.callback(cluster.stop)
        cluster.start()
        self.url = database.database()
        given = {"store": self.url, "bus": cluster.servers, "partitions": PARTITIONS, "tick_seconds": 0.5}
        self.ingest = Process(folder / "ingest.log", role="ingest", **given)
        stack.callback(self.ingest.end)
        self.worker = Process(folder / "worker.log", role="worker", **given)
        stack.callback(self.worker.end)
        self.senders = senders_of([self.ingest.url], 12)
        self.senders.start()
        until(lambda: len(self.senders.acknowledged) > 40, 40)


def test_a_full_disk_of_postgresql_delays_and_loses_nothing(disk: SmallDisk, tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            database, cluster = Postgres(durable=True, data=disk.path / "data"), NatsCluster()
        except (NoPostgres, NoNats) as error:
            pytest.skip(str(error))
        fleet = Small(stack, tmp_path, database, cluster)
        disk.fill()
        before = len(fleet.senders.acknowledged)
        until(lambda: len(fleet.senders.acknowledged) > before + 100, 40)  # the bus takes them meanwhile
        disk.free()
        if not database.is_alive:  # out of room for its log it ends by itself
            database.start()
        fleet.senders.stop()
        is_whole(fleet.url, fleet.senders, [fleet.worker])


def test_a_full_disk_of_a_bus_node_may_delay_and_loses_nothing(disk: SmallDisk, tmp_path: Path) -> None:
    with ExitStack() as stack:
        stores = [disk.path / "store", tmp_path / "store1", tmp_path / "store2"]
        try:
            database, cluster = Postgres(durable=True), NatsCluster(stores=stores)
        except (NoPostgres, NoNats) as error:
            pytest.skip(str(error))
        fleet = Small(stack, tmp_path, database, cluster)
        disk.fill()
        time.sleep(8)  # a leader that cannot write stays leader for a while, or for good (nats-server 2.9.10)
        disk.free()
        cluster.kill_node(0)
        cluster.start_node(0)
        before = len(fleet.senders.acknowledged)
        until(lambda: len(fleet.senders.acknowledged) > before + 50, 60)
        fleet.senders.stop()
        is_whole(fleet.url, fleet.senders, [fleet.worker])
