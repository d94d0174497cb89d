"""Agents that run for a test and are stopped after it, on short socket paths."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.nvml_stand_in import no_devices
from agent.receiver import Receiver
from replaywatch.agent.options import AgentOptions
from replaywatch.agent.serve import RunningAgent, start_in_thread

StartAgent = Callable[..., RunningAgent]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name (at most 100 bytes)."""
    with tempfile.TemporaryDirectory(prefix="rw-") as folder:
        yield Path(folder)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as it:
        yield it


@pytest.fixture
def start_agent(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartAgent]:
    """Starts agents with quick times and a spool of their own; all are stopped."""
    for name in ("POD_NAME", "POD_NAMESPACE", "NODE_NAME", "CONTAINER_NAME"):
        monkeypatch.delenv(name, raising=False)
    running: list[RunningAgent] = []

    def start(nvml: Any = None, **options: Any) -> RunningAgent:
        quick = {
            "socket": short_path / "agent.sock",
            "spool_dir": short_path / "spool",
            "listen": "127.0.0.1:0",
            "batch_seconds": 0.05,
            "retry_max_seconds": 0.1,
            "frames_per_second": 100_000.0,
            "device_seconds": 60.0,
        }
        agent = start_in_thread(AgentOptions(**{**quick, **options}), nvml or no_devices())
        running.append(agent)
        return agent

    yield start
    for agent in running:
        agent.stop()
        assert not agent.thread.is_alive()
