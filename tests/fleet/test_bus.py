from __future__ import annotations

import time

import httpx
import pytest

from collector import web
from collector.polling import until
from collector.postgres import Postgres
from collector.webhook_receiver import WebhookReceiver
from fleet.conftest import Begin
from fleet.ledger import account, lifetime_steps, open_incidents
from fleet.nats_cluster import NatsCluster
from fleet.senders import Sender, Senders, fleet_workload

pytestmark = pytest.mark.slow
GPUS = 4
MODELS = 6


def nodes(urls: list[str], count: int, eager: int = 0) -> list[Sender]:
    return [
        Sender(
            node=n,
            urls=urls,
            workloads=[fleet_workload(n, g, MODELS) for g in range(GPUS)],
            is_eager=n < eager,
        )
        for n in range(count)
    ]


def ready(url: str) -> bool:
    try:
        return web.get(f"{url}/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def test_a_batch_goes_over_the_bus_to_a_verdict_an_incident_and_one_message(
    begin: Begin, database: Postgres, receiver: WebhookReceiver
) -> None:
    told = {
        "webhook_url": receiver.url,
        "webhook_allow_private": True,
        "group_wait_seconds": 3.0,
        "public_url": "http://rw.example",
    }
    ingest = begin("ingest", **told)
    begin("worker", **told)
    begin("worker", **told)
    senders = Senders(nodes([ingest.url], 12, eager=12), 2, 0.3)
    senders.start()
    until(lambda: len(receiver.received) >= MODELS or _is_told(receiver), 40)
    senders.stop()
    until(lambda: _verdicts(ingest.url) == {"finding": 12 * GPUS}, 20)
    # Acknowledged is what the bus has; the store has it a moment later.
    until(lambda: account(database.url("t1"), senders.acknowledged, 4).missing == 0, 20)
    found = account(database.url("t1"), senders.acknowledged, 4)
    assert (found.twice, found.unasked) == (0, 0)
    assert found.stored_windows == found.windows
    incidents = [i for i in open_incidents(database.url("t1")) if i[0] == "disabled"]
    assert incidents == [("disabled", "open", 12 * GPUS, 12 * GPUS)]
    time.sleep(2)
    assert len([r for r in receiver.received if r.content["detector"] == "disabled"]) == 1


def test_nothing_acknowledged_is_lost_when_worker_bus_and_database_are_killed(
    begin: Begin, database: Postgres, cluster: NatsCluster
) -> None:
    ingests = [begin("ingest") for _ in range(2)]
    workers = [begin("worker") for _ in range(2)]
    senders = Senders(nodes([i.url for i in ingests], 16), 4, 0.2)
    senders.start()
    until(lambda: len(senders.acknowledged) > 50, 30)
    workers[0].kill()
    time.sleep(3)
    cluster.kill_node(1)
    time.sleep(3)
    cluster.start_node(1)
    ingests[0].kill()
    time.sleep(2)
    database.kill()
    time.sleep(2)
    database.start()
    workers.append(begin("worker"))
    time.sleep(5)
    senders.stop()

    def is_settled() -> bool:
        found = account(database.url("t1"), senders.acknowledged, 4)
        return found.missing == 0

    until(is_settled, 60)
    found = account(database.url("t1"), senders.acknowledged, 4)
    assert (found.missing, found.twice, found.unasked) == (0, 0, 0)
    assert found.stored_windows == found.windows
    assert found.batches > 100
    for worker in workers[1:]:
        worker.stop()
    included, stored = lifetime_steps(database.url("t1"))
    assert included == stored


def test_a_worker_that_stops_hands_its_partitions_over_at_once(begin: Begin, database: Postgres) -> None:
    first, second = begin("worker"), begin("worker")
    until(lambda: _owners(database) == 2, 20)
    second.stop()
    until(lambda: _owners(database) == 1, 5)
    assert first.is_alive


def _owners(database: Postgres) -> int:
    import psycopg

    with psycopg.connect(database.url("t1")) as connection:
        row = connection.execute("SELECT count(DISTINCT owner), bool_and(until_ns > 0) FROM leases").fetchone()
    assert row is not None
    return int(row[0]) if row[1] else 0


def _verdicts(url: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for workload in web.get(f"{url}/v1/workloads?limit=1000").json()["workloads"]:
        found[workload["verdict"]] = found.get(workload["verdict"], 0) + 1
    return found


def _is_told(receiver: WebhookReceiver) -> bool:
    return any(r.content["detector"] == "disabled" for r in receiver.received)


def test_a_worker_whose_bus_is_gone_still_stops(begin: Begin, cluster: NatsCluster) -> None:
    ingest, worker = begin("ingest"), begin("worker")
    senders = Senders(nodes([ingest.url], 8), 2, 0.05)
    senders.start()
    until(lambda: len(senders.acknowledged) > 30, 30)
    senders.stop()
    for node in range(3):
        cluster.kill_node(node)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 15
