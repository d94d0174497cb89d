"""Minutes of kills at random under load, counted at the source and at the end.

Run: `PYTHONPATH=agent:detectors:collector:tests python tests/fleet/chaos.py --minutes 10 --json docs/data/chaos.json`.
Two ingest processes, two workers, a three-node NATS cluster, a durable PostgreSQL and two agents, all real. Every few
seconds one of them is killed as a crash would, and started again. Prints what was done and what came of it; ends with 1
when anything that was acknowledged is missing, or anything is there twice.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from collector.postgres import Postgres, program
from collector.webhook_receiver import WebhookReceiver
from fleet.agents import Agent, Probe
from fleet.ledger import account, lifetime_steps, open_incidents, stored_starts
from fleet.nats_cluster import NatsCluster
from fleet.processes import Process
from fleet.senders import Sender, Senders, fleet_workload

NODES, GPUS, MODELS, PARTITIONS, EAGER = 40, 4, 8, 8, 10
AGENTS, WATCHED = 2, "watched"
# A frame waits in the agent's socket or memory for less than this before it is in the spool, on a busy machine too.
IN_THE_SOCKET_SECONDS = 5.0
PARTS = ("worker", "worker", "ingest", "bus node", "database", "agent")


class Fleet:
    """Everything that may be killed."""

    def __init__(self, folder: Path, webhook: str, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.random = random.Random(seed)
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
        self.agents = [Agent(folder / f"agent{n}", self.ingests[n % 2].url) for n in range(AGENTS)]
        for agent in self.agents:
            agent.start()

    def _process(self, role: str, port: int = 0) -> Process:
        self.done[f"{role} started"] += 1
        log = self._folder / f"{role}-{self.done[f'{role} started']}.log"
        return Process(log, role=role, **{**self._options, "port": port})

    def strike(self) -> str:
        """Kill one thing, and start it again a little later; what it was."""
        what = self.random.choice(PARTS)
        pause = self.random.uniform(0.5, 6.0)
        if what == "worker":
            self._replace(self.workers, "worker", pause)
        elif what == "ingest":
            self._replace(self.ingests, "ingest", pause)
        elif what == "bus node":
            node = self.random.randrange(3)
            self.cluster.kill_node(node)
            time.sleep(pause)
            self.cluster.start_node(node)
        elif what == "agent":
            agent = self.random.choice(self.agents)
            agent.kill()
            time.sleep(pause)
            agent.start()
        else:
            self.database.kill()
            time.sleep(pause)
            self.database.start()
        self.done[f"{what} killed"] += 1
        return f"{what}, away for {pause:.1f} s"

    def _replace(self, processes: list[Process], role: str, pause: float) -> None:
        n = self.random.randrange(len(processes))
        port = int(processes[n].url.rpartition(":")[2])
        processes[n].kill()
        time.sleep(pause)
        processes[n] = self._process(role, port)

    def stop(self) -> None:
        """End everything."""
        for agent in self.agents:
            agent.stop()
        for process in (*self.ingests, *self.workers):
            if process.is_alive:
                process.kill()
        self.cluster.stop()
        self.database.stop()


@dataclass(frozen=True)
class Watched:
    """What became of the windows that probes gave to agents.

    `taken_and_lost` were in an agent's spool when it was killed; `lost_in_sockets` were sent at most some seconds
    before a kill and never reached the spool; `lost_otherwise` has no such excuse.
    """

    sent: int
    refused_at_the_socket: int
    stored: int
    twice: int
    taken_and_lost: int
    lost_in_sockets: int
    lost_otherwise: int
    longest_before_a_kill_seconds: float


def watched(fleet: Fleet, probes: list[Probe], stored: Counter[int]) -> Watched:
    """Compare what probes sent with what the store has."""
    taken_and_lost = in_sockets = otherwise = 0
    longest = 0.0
    for agent, probe in zip(fleet.agents, probes, strict=True):
        for start_ns, at in probe.sent.items():
            if stored[start_ns]:
                continue
            before = min((kill - at for kill in agent.kills if kill >= at), default=float("inf"))
            if start_ns in agent.taken:
                taken_and_lost += 1
            elif before <= IN_THE_SOCKET_SECONDS:
                in_sockets += 1
                longest = max(longest, before)
            else:
                otherwise += 1
    return Watched(
        sent=sum(len(p.sent) for p in probes),
        refused_at_the_socket=sum(p.refused for p in probes),
        stored=sum(stored.values()),
        twice=sum(n - 1 for n in stored.values()),
        taken_and_lost=taken_and_lost,
        lost_in_sockets=in_sockets,
        lost_otherwise=otherwise,
        longest_before_a_kill_seconds=round(longest, 3),
    )


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = next((s for s in Path("/proc/cpuinfo").read_text().splitlines() if s.startswith("model name")), "")
    nats = subprocess.run([NatsCluster().program, "--version"], capture_output=True, text=True, check=True).stdout
    postgres = subprocess.run([program("postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "cores": str(os.cpu_count()),
        "cpu": model.partition(":")[2].strip(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nats-server": nats.strip(),
        "postgres": postgres.strip(),
        **{name: version(name) for name in ("nats-py", "psycopg", "SQLAlchemy")},
    }


def run(fleet: Fleet, receiver: WebhookReceiver, minutes: float) -> dict[str, Any]:
    """Kill for some minutes, let everything settle, and count."""
    urls = [p.url for p in fleet.ingests]
    senders = Senders(
        [
            Sender(n, urls, [fleet_workload(n, g, MODELS) for g in range(GPUS)], is_eager=n < EAGER)
            for n in range(NODES)
        ],
        4,
        0.5,
    )
    probes = [
        Probe(agent, [fleet_workload(NODES + n, g, MODELS, WATCHED) for g in range(GPUS)], 0.02)
        for n, agent in enumerate(fleet.agents)
    ]
    senders.start()
    for probe in probes:
        probe.start()
    began = time.monotonic()
    while time.monotonic() - began < minutes * 60:
        time.sleep(fleet.random.uniform(2, 8))
        print(f"{time.monotonic() - began:6.1f} s: {fleet.strike()}", flush=True)
    for probe in probes:
        probe.stop()
    senders.stop()
    settle(fleet, senders)
    return count(fleet, senders, probes, receiver)


def settle(fleet: Fleet, senders: Senders) -> None:
    """Wait until agents have delivered and workers stored everything; three minutes at most."""
    url, end = fleet.database.url("t1"), time.monotonic() + 180
    while time.monotonic() < end:
        is_delivered = not any(agent.spooled() for agent in fleet.agents)
        if is_delivered and not account(url, senders.acknowledged, PARTITIONS).missing:
            break
        time.sleep(1)
    time.sleep(20)
    for worker in fleet.workers:
        worker.stop()


def count(fleet: Fleet, senders: Senders, probes: list[Probe], receiver: WebhookReceiver) -> dict[str, Any]:
    """What was there at both ends."""
    url = fleet.database.url("t1")
    found, (included, stored) = account(url, senders.acknowledged, PARTITIONS), lifetime_steps(url)
    seen = watched(fleet, probes, stored_starts(url, WATCHED))
    keys = Counter(r.headers["Idempotency-Key"] for r in receiver.received)
    told = Counter(f"{r.content['detector']} {r.content['event']}" for r in receiver.received)
    lost = found.missing + seen.taken_and_lost + seen.lost_otherwise
    is_whole = included == stored == found.windows + seen.stored and found.unasked == seen.stored
    return {
        "done": dict(sorted(fleet.done.items())),
        "batches": {**asdict(found), "attempts at sending": sum(s.attempts for s in senders.senders)},
        "windows through agents": asdict(seen),
        "windows in hourly sums": included,
        "windows stored": stored,
        "incidents": [list(i) for i in sorted(open_incidents(url))],
        "messages": {**dict(sorted(told.items())), "keys": len(keys), "repeated": sum(n - 1 for n in keys.values())},
        "nothing lost, nothing twice": not lost and not found.twice and not seen.twice and is_whole,
    }


def main() -> int:
    """Run, print, and write where asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, WebhookReceiver() as receiver:
        fleet = Fleet(Path(folder), receiver.url, given.seed)
        try:
            found = run(fleet, receiver, given.minutes)
        finally:
            fleet.stop()
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    told = {"measured": when, "machine": machine(), "minutes": given.minutes, "seed": given.seed, **found}
    print(json.dumps(told, indent=2))
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=2) + "\n")
    return 0 if found["nothing lost, nothing twice"] else 1


if __name__ == "__main__":
    sys.exit(main())
