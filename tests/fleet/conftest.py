"""A fleet's engines for tests: a three-node NATS cluster, a durable PostgreSQL, collector processes, a webhook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.postgres import NoPostgres, Postgres
from collector.webhook_receiver import WebhookReceiver
from fleet.nats_cluster import NatsCluster, NoNats
from fleet.processes import Process

Begin = Callable[..., Process]


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    try:
        it = NatsCluster()
    except NoNats as error:
        pytest.skip(str(error))
    try:
        it.start()
        yield it
    finally:
        it.stop()


@pytest.fixture
def database() -> Iterator[Postgres]:
    try:
        it = Postgres(durable=True)
        it.start()
    except NoPostgres as error:
        pytest.skip(str(error))
    yield it
    it.stop()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as it:
        yield it


@pytest.fixture
def begin(cluster: NatsCluster, database: Postgres, tmp_path: Path) -> Iterator[Begin]:
    """Starts collector processes on the bus and the store; kills what is left at the end."""
    url = database.database()
    begun: list[Process] = []

    def one(role: str, **options: Any) -> Process:
        given = {"store": url, "bus": cluster.servers, "role": role, "partitions": 4, "tick_seconds": 0.5, **options}
        process = Process(tmp_path / f"{role}-{len(begun)}.log", **given)
        begun.append(process)
        return process

    yield one
    for process in begun:
        if process.is_alive:
            process.kill()
