"""Agent and collector send their metrics over OTLP where they are asked to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otlp is not installed")

from otlp.receiver import OtlpReceiver
from replaywatch.agent.options import AgentOptions
from replaywatch.agent.serve import start_in_thread as start_agent
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import start_in_thread as start_collector
from replaywatch.contract.errors import ConfigurationError


def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_an_agent_sends(tmp_path: Path) -> None:
    with OtlpReceiver() as receiver:
        agent = start_agent(
            AgentOptions(socket=tmp_path / "s", listen="off", otlp_endpoint=receiver.url, otlp_seconds=0.1)
        )
        try:
            until(lambda: receiver.requests)
            assert "replaywatch_agent_processes" in receiver.metrics()
        finally:
            agent.stop()


def test_a_collector_sends(tmp_path: Path) -> None:
    with OtlpReceiver() as receiver:
        options = CollectorOptions(
            port=0, store=f"sqlite:///{tmp_path / 'o.db'}", otlp_endpoint=receiver.url, otlp_seconds=0.1
        )
        collector = start_collector(options)
        try:
            until(lambda: receiver.requests)
            assert "replaywatch_collector_workloads" in receiver.metrics()
        finally:
            collector.stop()


def test_nobody_there_stops_neither(tmp_path: Path) -> None:
    options = CollectorOptions(
        port=0, store=f"sqlite:///{tmp_path / 'o.db'}", otlp_endpoint="http://127.0.0.1:9", otlp_seconds=0.1
    )
    collector = start_collector(options)
    try:
        time.sleep(0.5)
        assert collector.is_alive
        assert collector.collector.loops["otlp"].is_alive
    finally:
        collector.stop()
    # Not even for the seconds that the library waits between two tries.
    until(lambda: not collector.collector.loops["otlp"].is_alive, 3)


def test_an_endpoint_that_cannot_work_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="OTLP endpoint"):
        start_collector(CollectorOptions(port=0, store=f"sqlite:///{tmp_path / 'o.db'}", otlp_endpoint="x"))
    assert not (tmp_path / "o.db").exists()
