"""Cables pulled between hosts under load, counted at the source and at the end.

Run as root: `PYTHONPATH=agent:detectors:collector:tests python tests/fleet/cut.py`.
Four hosts in network namespaces: three with a NATS node and a collector process each, one with a durable PostgreSQL;
senders at the hub. Packets to a host that is cut off vanish, so that connections hang where a killed process would
reset them. Ends with 0 when nothing that was acknowledged is missing or there twice, 1 when something is, 77 where
namespaces cannot be made.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from collector.postgres import NoPostgres, Postgres
from fleet.hosts import Host, NoNamespaces, isolate
from fleet.ledger import Account, account, lifetime_steps, owners
from fleet.nats_cluster import NatsCluster, NoNats
from fleet.processes import Process
from fleet.senders import Sender, Senders, fleet_workload

NODES, GPUS, MODELS, PARTITIONS, SKIPPED = 16, 4, 8, 8, 77


class Network:
    """The hosts, what runs on them, and what was said about it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.hosts = [Host(n) for n in range(1, 5)]
        for host in self.hosts:
            stack.callback(host.remove)
        at = self.hosts[3]
        self.database = Postgres(durable=True, address=at.address, prefix=at.prefix)
        stack.callback(self.database.stop)
        self.database.start()
        self.bus = bus = NatsCluster(hosts=self.hosts[:3])
        stack.callback(bus.stop)
        bus.start()
        options: dict[str, Any] = {"store": self.database.database(), "bus": bus.servers, "partitions": PARTITIONS}
        self.url = self.database.url("t1")
        self.processes = []
        for n, role in enumerate(("ingest", "all", "worker")):
            process = Process(folder / f"{role}.log", self.hosts[n], role=role, tick_seconds=1.0, **options)
            stack.callback(process.end)
            self.processes.append(process)

    @contextmanager
    def without(self, what: str, host: Host) -> Iterator[None]:
        """Cut a host off for a while."""
        began = time.monotonic()
        host.cut()
        try:
            yield
        finally:
            host.mend()
            print(f"{what} was cut off for {time.monotonic() - began:.1f} s", flush=True)


def wait(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds. Raises: SystemExit."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)
    print(f"after {time.monotonic() - began:.1f} s: {what}", flush=True)


def run(network: Network, long_s: float, short_s: float) -> Account:
    """Cut one host after the other, let everything settle, and count."""
    # One process that takes batches shares its host with a worker, the other is alone.
    urls = [network.processes[0].url, network.processes[1].url]
    nodes = [Sender(n, urls, [fleet_workload(n, g, MODELS) for g in range(GPUS)]) for n in range(NODES)]
    senders = Senders(nodes, NODES, 0.5, 2.0)
    wait(lambda: len(owners(network.url)) == 2, 40, "two workers share the partitions")
    senders.start()
    wait(lambda: len(senders.acknowledged) > 50, 30, "50 batches were acknowledged")
    first, second, third, store = network.hosts
    with network.without("a worker, its bus node and an ingest process", second):
        wait(lambda: len(owners(network.url)) == 1, long_s, "the other worker has all partitions")
    with network.without("an ingest process and its bus node", first):
        time.sleep(short_s)
    with network.without("PostgreSQL", store):
        time.sleep(short_s)
    with network.without("the other worker and its bus node", third):
        time.sleep(short_s)
    time.sleep(2)
    senders.stop()
    print(f"{len(senders.acknowledged)} batches were acknowledged", flush=True)
    try:
        settle(network, lambda: account(network.url, senders.acknowledged, PARTITIONS).missing == 0)
    except SystemExit:
        print(account(network.url, senders.acknowledged, PARTITIONS), f"owners {owners(network.url)}", flush=True)
        for process in network.processes:
            print(f"--- {process.log.name}\n{process.log.read_text()[-3000:]}", flush=True)
        raise
    for process in network.processes:
        process.stop()
    return account(network.url, senders.acknowledged, PARTITIONS)


def settle(network: Network, is_stored: Callable[[], bool]) -> None:
    """Wait for everything. A bus that finds no leader any more is started again, as a liveness probe would.

    In two of sixteen runs not everything was stored 90 s after the last cable was back; nats-server 2.9.10 answered 503
    in the one that was looked at. Whether starting it again ends that has not been seen: it did not come again.
    """
    try:
        wait(is_stored, 60, "everything is stored")
    except SystemExit as error:
        print(f"{error}; starting the bus again, node by node", flush=True)
        for node in range(3):
            network.bus.kill_node(node)
            network.bus.start_node(node)
            time.sleep(5)
        wait(is_stored, 120, "everything is stored")


def main() -> int:
    """Run, print, and say how it ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--takeover-seconds", type=float, default=45)
    parser.add_argument("--short-seconds", type=float, default=4)
    given = parser.parse_args()
    try:
        isolate()
        with ExitStack() as stack:
            network = Network(stack, Path(stack.enter_context(tempfile.TemporaryDirectory())))
            found = run(network, given.takeover_seconds, given.short_seconds)
            included, stored = lifetime_steps(network.url)
    except (NoNamespaces, NoNats, NoPostgres) as error:
        print(error)
        return SKIPPED
    print(found)
    print(f"windows in hourly sums: {included} of {stored} stored")
    is_good = (found.missing, found.twice, found.unasked) == (0, 0, 0) and included == stored == found.windows
    print("nothing lost, nothing twice" if is_good else "NOT as it should be")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
