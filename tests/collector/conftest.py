"""Collectors for tests: real servers, SQLite files, a real PostgreSQL, a receiver of webhooks, a clock set by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.postgres import NoPostgres, Postgres
from collector.rig import Rig
from collector.webhook_receiver import WebhookReceiver
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import CollectorHandle, start_in_thread
from replaywatch.collector.store import Store

Start = Callable[..., CollectorHandle]
# What the store has a part in runs on both databases; the rest only needs some store.
ON_BOTH = ("incidents", "retention", "writer", "notifications", "serving", "groups", "moving", "silences", "batches")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_kind" in metafunc.fixturenames:
        is_both = metafunc.module.__name__.rpartition("test_")[2] in ON_BOTH
        metafunc.parametrize("store_kind", ["sqlite", "postgresql"] if is_both else ["sqlite"])


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    try:
        server = Postgres()
    except NoPostgres as error:
        pytest.skip(str(error))
    try:
        server.start()
        Store.open(server.url(server.database().rpartition("/")[2])).close()
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """A database with the layout in place: a copy of the first one."""
    return postgres.database("t1")


@pytest.fixture
def store_url(store_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if store_kind == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return f"sqlite:///{tmp_path / 'replaywatch.db'}"


@pytest.fixture
def start(store_url: str) -> Iterator[Start]:
    """Starts collectors on a free port and stops them at the end; options as given."""
    handles = []

    def begin(**given: Any) -> CollectorHandle:
        passed = {name: given.pop(name) for name in ("judge", "clock", "jitter") if name in given}
        quick = {"port": 0, "store": store_url, "tick_seconds": 0.02, "group_wait_seconds": 0.0}
        options = CollectorOptions(**{**quick, "webhook_allow_private": True, **given})
        handle = start_in_thread(options, **passed)
        handles.append(handle)
        return handle

    yield begin
    for handle in handles:
        handle.stop()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as it:
        yield it


@pytest.fixture
def rig(store_url: str) -> Iterator[Rig]:
    it = Rig(store_url)
    yield it
    it.stop()
