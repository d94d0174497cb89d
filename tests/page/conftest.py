"""A browser for each module, and a collector with a fleet in it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from collector import web
from collector.material import HEADERS, SECOND, body, eager_window, fleet, healthy_window, workload
from page.browser import chromium
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import CollectorHandle, start_in_thread
from replaywatch.contract.window import Window


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For a module and not for the session: while the driver runs, no other test can run an event loop."""
    with chromium() as it:
        yield it


def send(handle: CollectorHandle, windows: list[Window], key: str, headers: dict[str, str] | None = None) -> None:
    """Windows to a collector, and what it makes of them."""
    answer = web.post(f"{handle.url}/v1/batches", content=body(windows, key), headers={**HEADERS, **(headers or {})})
    assert answer.status_code == 200, answer.text
    handle.collector.detection.tick()


def quiet(folder: Any, **given: Any) -> CollectorHandle:
    """A collector that judges when it is told to."""
    options = CollectorOptions(port=0, store=f"sqlite:///{folder / 'page.db'}", group_wait_seconds=0.0, **given)
    handle = start_in_thread(options)
    handle.collector.loops["detection"].stop()
    return handle


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorHandle]:
    """Six workloads of four minutes, each with another verdict."""
    handle = quiet(tmp_path_factory.mktemp("small"))
    for number, windows in enumerate(fleet(time.time_ns(), 4)):
        send(handle, windows, f"k{number}")
    yield handle
    handle.stop()


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorHandle]:
    """A thousand workloads, one in ten with its graphs off."""
    handle = quiet(tmp_path_factory.mktemp("thousand"))
    rng, now = random.Random(4), time.time_ns()
    whos = [workload(f"chat-{n:04d}", node=f"gpu-{n // 8:03d}", gpu_index=n % 8) for n in range(1000)]
    for ago in range(6, 0, -1):
        windows = [
            (eager_window if n % 10 == 0 else healthy_window)(now - ago * 5 * SECOND, rng, who)
            for n, who in enumerate(whos)
        ]
        for part in range(0, 1000, 250):
            send(handle, windows[part : part + 250], f"k{ago}-{part}")
    yield handle
    handle.stop()
