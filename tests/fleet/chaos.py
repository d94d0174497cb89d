"""Ten minutes of kills at random under load, counted at the source and at the end.

Run: `PYTHONPATH=agent:detectors:collector:tests python tests/fleet/chaos.py --minutes 10`.
Two ingest processes, two workers, a three-node NATS cluster and a durable PostgreSQL, all real. Every few seconds one
of them is killed as a crash would, and started again. Prints what was done and what came of it; ends with 1 when
anything that was acknowledged is missing, or anything is there twice.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from collector.postgres import Postgres
from collector.webhook_receiver import WebhookReceiver
from fleet.ledger import account, lifetime_steps, open_incidents
from fleet.nats_cluster import NatsCluster
from fleet.processes import Process
from fleet.senders import Sender, Senders, fleet_workload

NODES, GPUS, MODELS, PARTITIONS, EAGER = 40, 4, 8, 8, 10


class Fleet:
    """Everything that may be killed."""

    def __init__(self, folder: Path, webhook: str, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._folder = folder
        self.cluster, self.database = NatsCluster(), Postgres(durable=True)
        self.cluster.start()
        self.database.start()
        self._options: dict[str, Any] = {
            "store": self.database.database(),
            "bus": self.cluster.servers,
            "partitions": PARTITIONS,
            "tick_seconds": 1.0,
            "group_wait_seconds": 5.0,
            "webhook_url": webhook,
            "webhook_allow_private": True,
        }
        self.ingests = [self._process("ingest") for _ in range(2)]
        self.workers = [self._process("worker") for _ in range(2)]

    def _process(self, role: str, port: int = 0) -> Process:
        self.done[f"{role} started"] += 1
        log = self._folder / f"{role}-{self.done[f'{role} started']}.log"
        return Process(log, role=role, **{**self._options, "port": port})

    def strike(self) -> str:
        """Kill one thing, and start it again a little later; what it was."""
        what = self._random.choice(("worker", "worker", "ingest", "bus node", "database"))
        pause = self._random.uniform(0.5, 6.0)
        if what == "worker":
            self._replace(self.workers, "worker", pause)
        elif what == "ingest":
            self._replace(self.ingests, "ingest", pause)
        elif what == "bus node":
            node = self._random.randrange(3)
            self.cluster.kill_node(node)
            time.sleep(pause)
            self.cluster.start_node(node)
        else:
            self.database.kill()
            time.sleep(pause)
            self.database.start()
        self.done[f"{what} killed"] += 1
        return f"{what}, away for {pause:.1f} s"

    def _replace(self, processes: list[Process], role: str, pause: float) -> None:
        n = self._random.randrange(len(processes))
        port = int(processes[n].url.rpartition(":")[2])
        processes[n].kill()
        time.sleep(pause)
        processes[n] = self._process(role, port)

    def stop(self) -> None:
        """End everything."""
        for process in (*self.ingests, *self.workers):
            if process.is_alive:
                process.kill()
        self.cluster.stop()
        self.database.stop()


def main() -> int:
    """Run and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, WebhookReceiver() as receiver:
        fleet = Fleet(Path(folder), receiver.url, given.seed)
        try:
            return _run(fleet, receiver, given.minutes)
        finally:
            fleet.stop()


def _run(fleet: Fleet, receiver: WebhookReceiver, minutes: float) -> int:
    urls = [p.url for p in fleet.ingests]
    senders = Senders(
        [
            Sender(n, urls, [fleet_workload(n, g, MODELS) for g in range(GPUS)], is_eager=n < EAGER)
            for n in range(NODES)
        ],
        4,
        0.5,
    )
    senders.start()
    began = time.monotonic()
    while time.monotonic() - began < minutes * 60:
        time.sleep(fleet._random.uniform(2, 8))
        print(f"{time.monotonic() - began:6.1f} s: {fleet.strike()}", flush=True)
    senders.stop()
    url = fleet.database.url("t1")
    end = time.monotonic() + 180
    while account(url, senders.acknowledged, PARTITIONS).missing and time.monotonic() < end:
        time.sleep(1)
    time.sleep(20)
    for worker in fleet.workers:
        worker.stop()
    found = account(url, senders.acknowledged, PARTITIONS)
    included, stored = lifetime_steps(url)
    told = Counter((r.content["detector"], r.content["event"]) for r in receiver.received)
    keys = Counter(r.headers["Idempotency-Key"] for r in receiver.received)
    print(dict(fleet.done))
    print(found)
    print(f"attempts at sending: {sum(s.attempts for s in senders.senders)}")
    print(f"windows in hourly sums: {included} of {stored} stored")
    print(f"incidents: {open_incidents(url)}")
    print(f"messages: {dict(told)}, of which repeated: {sum(n - 1 for n in keys.values())}")
    is_good = (found.missing, found.twice, found.unasked) == (0, 0, 0) and included == stored == found.windows
    print("nothing lost, nothing twice" if is_good else "NOT as it should be")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
