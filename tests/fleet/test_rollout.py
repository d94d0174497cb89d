from __future__ import annotations

import time
from typing import Any

import pytest

from collector.polling import until
from collector.postgres import Postgres
from collector.webhook_receiver import WebhookReceiver
from fleet.conftest import Begin
from fleet.ledger import open_incidents
from fleet.senders import Sender, Senders, fleet_workload

pytestmark = pytest.mark.slow
NODES, GPUS, MODELS = 50, 8, 4


def test_a_rollout_that_loses_graphs_on_four_hundred_pods_reaches_a_webhook_once(
    begin: Begin, database: Postgres, receiver: WebhookReceiver
) -> None:
    given = {"webhook_url": receiver.url, "webhook_allow_private": True, "group_wait_seconds": 20.0}
    ingest = begin("ingest", **given)
    workers = [begin("worker", **given) for _ in range(2)]
    nodes = [Sender(n, [ingest.url], [fleet_workload(n, g, MODELS) for g in range(GPUS)]) for n in range(NODES)]
    senders = Senders(nodes, 2, 2.0)
    senders.start()
    until(lambda: len(senders.acknowledged) > NODES, 60)
    for node in nodes:  # the rollout: the pods of one node after the other are replaced by such without graphs
        node.workloads = [fleet_workload(node.node, g, MODELS, "new") for g in range(GPUS)]
        node.is_eager = True
        time.sleep(0.05)
        if node.node == NODES // 2:
            workers[0].kill()
    until(lambda: ("disabled", "open", NODES * GPUS, NODES * GPUS) in open_incidents(database.url("t1")), 90)
    until(lambda: len(told(receiver)) > 0, 40)
    time.sleep(3)
    senders.stop()
    (message,) = told(receiver)
    assert message["event"] == "opened"
    assert message["incident"]["members"] == NODES * GPUS
    assert [i for i in open_incidents(database.url("t1")) if i[0] == "disabled"] == [
        ("disabled", "open", NODES * GPUS, NODES * GPUS)
    ]


def told(receiver: WebhookReceiver) -> list[dict[str, Any]]:
    """What was said of graphs that are off."""
    return [r.content for r in receiver.received if r.content["detector"] == "disabled"]
