"""What a window costs on its way through the whole fleet set-up, and how that grows with the size of the fleet.

Run: `PYTHONPATH=agent:detectors:collector:tests python tests/fleet/simulate.py --gpus 1000 10000 100000`.
Real processes: ingest, workers, a three-node NATS cluster and a durable PostgreSQL, all on this machine beside the
senders. For each size every GPU has a workload of its own; nodes of eight send the windows of 30 seconds at once, as
fast as they are acknowledged. Prints a Markdown table; with `--write FILE` it replaces the table between the markers
there.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import os
import platform
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from collector.material import HEADERS, SECOND, eager_window, healthy_window
from collector.material import batch as batch_of
from collector.postgres import Postgres
from fleet.nats_cluster import NatsCluster
from fleet.processes import Process
from fleet.senders import fleet_workload
from replaywatch.contract.wire import encode

GPUS = 8
ROUNDS = 3  # windows of a GPU in one batch: 10 s each, sent every 30 s
START, BEGIN, END = "<!-- simulated -->", 1111111111111111111, 2222222222222222222
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Row:
    """One size of fleet: CPU microseconds a window by stage."""

    gpus: int
    windows: int
    seconds: float
    ingest_us: float
    worker_us: float
    bus_us: float
    store_us: float
    worker_mib: float
    ingest_mib: float
    tick_seconds: float
    lag_seconds: float

    @property
    def total_us(self) -> float:
        return self.ingest_us + self.worker_us + self.bus_us + self.store_us

    def cells(self) -> str:
        """The row of the table."""
        wanted = self.gpus / 10
        cores = wanted * self.total_us / 1e6
        figures = (
            f"{self.gpus:,}",
            f"{wanted:,.0f}",
            f"{self.windows / self.seconds:,.0f}",
            f"{self.ingest_us:.0f}",
            f"{self.bus_us:.0f}",
            f"{self.worker_us:.0f}",
            f"{self.store_us:.0f}",
            f"{self.total_us:.0f}",
            f"{cores:.1f}",
            f"{self.worker_mib * 1024 / self.gpus:.0f}",
            f"{self.tick_seconds:.2f}",
            f"{self.lag_seconds:.1f}",
        )
        return "| " + " | ".join(figures) + " |"


HEAD = (
    "| GPUs | windows/s that they make | windows/s taken here | ingest us | bus us | workers us | store us | all us "
    "| cores for the fleet | worker KiB a GPU | mean tick s | last window judged after s |\n"
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


class Templates:
    """A batch of a node with places for key and times, so that sending costs little."""

    def __init__(self, models: int) -> None:
        self._models = models
        self._made: dict[bool, bytes] = {}

    def body(self, node: int, key: str, now_ns: int) -> bytes:
        """The batch of a node that ends now."""
        is_eager = node % 20 == 0
        if is_eager not in self._made:
            self._made[is_eager] = self._template(is_eager)
        text = self._made[is_eager].replace(b"NODE", b"%05d" % node).replace(b"MODEL", b"%d" % (node % self._models))
        text = text.replace(b"THE-KEY", key.encode()).replace(b"3333333333333333333", b"%d" % now_ns)
        for i in range(ROUNDS):
            begin = now_ns - (ROUNDS - i) * 10 * SECOND
            text = text.replace(b"%d" % (BEGIN + i), b"%d" % begin).replace(
                b"%d" % (END + i), b"%d" % (begin + 10 * SECOND)
            )
        return gzip.compress(text, 1)

    def _template(self, is_eager: bool) -> bytes:
        rng = random.Random(1)
        make = eager_window if is_eager else healthy_window
        windows = []
        for gpu in range(GPUS):
            who = replace(
                fleet_workload(0, gpu, 1),
                pod=f"pod-NODE-{gpu}",
                node="node-NODE",
                model_name="model-MODEL",
                gpu_uuid=f"GPU-NODE-{gpu}",
            )
            windows += [replace(make(0, rng, who), start_ns=BEGIN + i, end_ns=END + i) for i in range(ROUNDS)]
        return encode(batch_of(windows, "THE-KEY", 3333333333333333333))


class Flood:
    """Threads that send each node's batch in turn, for some time and at least once each."""

    def __init__(self, urls: list[str], nodes: int, seconds: float, threads: int) -> None:
        self._urls = urls
        self._nodes = nodes
        self._end = time.monotonic() + seconds
        self._next = iter(range(1 << 60))
        self._lock = threading.Lock()
        self._run_id = uuid.uuid4().hex[:8]
        self._templates = Templates(max(1, nodes // 200))
        self.windows = 0
        self.refused = 0
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(threads)]

    def run(self) -> None:
        """Send."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _turn(self) -> int | None:
        with self._lock:
            turn = next(self._next)
        return turn if turn < self._nodes or time.monotonic() < self._end else None

    def _run(self, lane: int) -> None:
        parts = urlsplit(self._urls[lane % len(self._urls)])
        assert parts.hostname is not None
        line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        while (turn := self._turn()) is not None:
            body = self._templates.body(turn % self._nodes, f"{self._run_id}-{turn}", time.time_ns())
            while True:
                line.request("POST", "/v1/batches", body, dict(HEADERS))
                answer = line.getresponse()
                answer.read()
                if answer.status == 200:
                    break
                self.refused += 1
                time.sleep(0.2)
            with self._lock:
                self.windows += GPUS * ROUNDS
        line.close()


def tree_seconds(pid: int) -> float:
    """Processor time of a process and all of its children, ended ones too."""
    total = 0.0
    for each in (pid, *children(pid)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / TICKS
    return total


def children(pid: int) -> Iterator[int]:
    """Direct children of a process."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        yield from map(int, task.read_text().split())


def measure(gpus: int, seconds: float, ingests: int, workers: int, folder: Path) -> Row:
    """Set everything up, flood it, and take it down."""
    cluster, database = NatsCluster(), Postgres(durable=True, settings=("shared_buffers=512MB", "max_wal_size=4GB"))
    running: list[Process] = []
    try:
        cluster.start()
        database.start()
        options: dict[str, Any] = {"store": database.database(), "bus": cluster.servers, "tick_seconds": 10.0}
        options |= {"partitions": 16, "cohort_spread": 16, "workloads_max": 1_000_000}
        takers = [Process(folder / f"ingest{n}-{gpus}.log", role="ingest", **options) for n in range(ingests)]
        running += takers
        doers = [Process(folder / f"worker{n}-{gpus}.log", role="worker", **options) for n in range(workers)]
        running += doers
        time.sleep(6)  # until the workers have shared the partitions
        return _flooded(gpus, seconds, takers, doers, cluster, database)
    finally:
        for process in running:
            process.kill()
        cluster.stop()
        database.stop()


def _flooded(
    gpus: int, seconds: float, takers: list[Process], doers: list[Process], cluster: NatsCluster, database: Postgres
) -> Row:
    def used() -> tuple[float, float, float, float]:
        return (
            sum(p.cpu_seconds() for p in takers),
            sum(p.cpu_seconds() for p in doers),
            sum(map(tree_seconds, cluster.pids)),
            tree_seconds(database.pid),
        )

    before, began = used(), time.monotonic()
    flood = Flood([t.url for t in takers], gpus // GPUS, seconds, 8)
    flood.run()
    lasted = time.monotonic() - began
    lag = _settle(database, flood.windows, doers)
    spent = [b - a for a, b in zip(before, used(), strict=True)]
    each = [s / flood.windows * 1e6 for s in spent]
    tick_seconds = _mean_tick(doers)
    return Row(
        gpus=gpus,
        windows=flood.windows,
        seconds=lasted,
        ingest_us=each[0],
        worker_us=each[1],
        bus_us=each[2],
        store_us=each[3],
        worker_mib=sum(p.resident_bytes() for p in doers) / 2**20,
        ingest_mib=sum(p.resident_bytes() for p in takers) / 2**20,
        tick_seconds=tick_seconds,
        lag_seconds=lag,
    )


def _settle(database: Postgres, windows: int, doers: list[Process]) -> float:
    """Wait until every window is stored and judged; how long that took after the last was acknowledged."""
    began = time.monotonic()
    with psycopg.connect(database.url("t1"), autocommit=True) as connection:
        while True:
            row = connection.execute("SELECT coalesce(sum(windows), 0) FROM batches").fetchone()
            if row is not None and row[0] >= windows and not _waiting(doers):
                return time.monotonic() - began
            if time.monotonic() - began > 600:
                raise SystemExit(f"only {row} of {windows} windows were stored ten minutes later")
            time.sleep(0.2)


def _metric(process: Process, name: str) -> float:
    parts = urlsplit(process.url)
    assert parts.hostname is not None
    line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    line.request("GET", "/metrics")
    text = line.getresponse().read().decode()
    line.close()
    return sum(float(row.rpartition(" ")[2]) for row in text.splitlines() if row.startswith(f"{name} "))


def _waiting(doers: list[Process]) -> bool:
    return any(_metric(p, "replaywatch_collector_waiting_batches") for p in doers)


def _mean_tick(doers: list[Process]) -> float:
    total = sum(_metric(p, "replaywatch_collector_detection_seconds_sum") for p in doers)
    count = sum(_metric(p, "replaywatch_collector_detection_seconds_count") for p in doers)
    return total / max(1.0, count)


def report(rows: list[Row], given: argparse.Namespace) -> str:
    """The table with what it was measured on."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    model = next((s for s in Path("/proc/cpuinfo").read_text().splitlines() if s.startswith("model name")), "")
    where = f"{os.cpu_count()} cores ({model.partition(':')[2].strip()}), Python {platform.python_version()}"
    head = (
        f"Measured {now} on {where}: {given.ingests} ingest, {given.workers} workers, three NATS servers, PostgreSQL "
        f"and the senders on one machine; at least {given.seconds:.0f} s and every GPU once for each row."
    )
    return "\n".join((head, "", HEAD, *(row.cells() for row in rows)))


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--ingests", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    rows = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for gpus in given.gpus:
            rows.append(measure(gpus, given.seconds, given.ingests, given.workers, Path(folder)))
            print(rows[-1].cells(), flush=True)
    if given.write is not None:
        before, _, rest = given.write.read_text().partition(START)
        after = rest.partition(START)[2]
        given.write.write_text(f"{before}{START}\n{report(rows, given)}\n{START}{after}")


if __name__ == "__main__":
    main()
