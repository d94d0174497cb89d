from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, body, eager_window, workload
from collector.polling import until
from replaywatch.collector.options import COMMAND, OPTIONS, CollectorOptions, settings
from replaywatch.collector.store import Store
from replaywatch.collector.tables import WindowRow
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.options import markdown_table

PROGRAM = """
import sys
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import run
run(CollectorOptions(port=0, store=sys.argv[1], tick_seconds=0.05), told=lambda url: print(url, flush=True))
"""


@contextmanager
def process(store_url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, store_url], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert started.stdout is not None
        yield started, started.stdout.readline().strip()
    finally:
        started.kill()
        started.communicate()


def send(url: str, key: str) -> bool:
    window = eager_window(time.time_ns() - 6 * SECOND, random.Random(1), workload("pod-a"))
    try:
        return web.post(f"{url}/v1/batches", content=body([window], key), headers=HEADERS).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_within_two_seconds(store_url: str, number: int) -> None:
    with process(store_url) as (started, url):
        assert send(url, "k")
        began = time.monotonic()
        started.send_signal(number)
        assert started.wait(5) == 0
        assert time.monotonic() - began < 2


def test_nothing_that_was_acknowledged_is_lost_by_a_kill_and_nothing_is_twice(store_url: str) -> None:
    acknowledged: set[str] = set()
    with process(store_url) as (started, url):

        def flood(lane: int) -> None:
            for i in range(10_000):
                if not send(url, f"{lane}-{i}"):
                    return
                acknowledged.add(f"{lane}-{i}")

        lanes = [threading.Thread(target=flood, args=(lane,)) for lane in range(4)]
        for lane in lanes:
            lane.start()
        until(lambda: len(acknowledged) > 20, 30)
        started.kill()
        for lane in lanes:
            lane.join()
    with process(store_url) as (_, url):
        for key in sorted(acknowledged):
            window = eager_window(time.time_ns() - 6 * SECOND, random.Random(1), workload("pod-a"))
            answer = web.post(f"{url}/v1/batches", content=body([window], key), headers=HEADERS)
            assert answer.json()["duplicate"] is True
    store = Store.open(store_url)
    with store.session() as session:
        rows = session.scalar(select(func.count()).select_from(WindowRow)) or 0
    store.close()
    # A batch in flight when the kill came may be stored without its sender knowing: at most one a lane.
    assert len(acknowledged) <= rows <= len(acknowledged) + 4


def test_a_taken_port_is_told_in_one_sentence(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="cannot listen"):
        start(port=taken.getsockname()[1])


def test_stopping_twice_is_harmless_and_frees_the_port(start: Start) -> None:
    handle = start()
    began = time.monotonic()
    handle.stop()
    handle.stop()
    assert time.monotonic() - began < 2
    with pytest.raises(httpx.ConnectError):
        web.get(handle.url)


def test_the_table_of_options_and_the_settings_are_the_same() -> None:
    assert {o.field: o.default for o in OPTIONS} == {
        f.name: getattr(CollectorOptions(), f.name) for f in fields(CollectorOptions)
    }
    assert CollectorOptions().host == "127.0.0.1"
    assert markdown_table(COMMAND, OPTIONS).count("\n") == len(OPTIONS) + 2


def test_settings_come_from_arguments_then_environment_then_defaults(tmp_path: Path) -> None:
    environment = {
        "REPLAYWATCH_COLLECTOR_PORT": "9000",
        "REPLAYWATCH_COLLECTOR_TICK_SECONDS": "2.5",
        "REPLAYWATCH_COLLECTOR_TOKEN": "t",
        "REPLAYWATCH_COLLECTOR_TOKEN_FILE": str(tmp_path),
    }
    found = settings({"port": "9001", "token": "ignored"}, environment)
    assert (found.port, found.tick_seconds, found.token, found.token_file) == (9001, 2.5, "t", tmp_path)
    assert found.open_ticks == 2


@pytest.mark.parametrize(
    "given", [{"port": "70000"}, {"port": "x"}, {"tick_seconds": "nan"}, {"open_severity": "loud"}, {"store": " "}]
)
def test_settings_that_cannot_work_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="--"):
        settings(given, {})
