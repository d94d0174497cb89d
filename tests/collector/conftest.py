"""Collectors for tests: real servers, SQLite files and a receiver of webhooks, and a clock set by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.rig import Rig
from collector.webhook_receiver import WebhookReceiver
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import CollectorHandle, start_in_thread

Start = Callable[..., CollectorHandle]


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'replaywatch.db'}"


@pytest.fixture
def start(store_url: str) -> Iterator[Start]:
    """Starts collectors on a free port and stops them at the end; options as given."""
    handles = []

    def begin(**given: Any) -> CollectorHandle:
        passed = {name: given.pop(name) for name in ("judge", "clock", "jitter") if name in given}
        options = CollectorOptions(**{"port": 0, "store": store_url, "tick_seconds": 0.02, **given})
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
