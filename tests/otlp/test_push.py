"""What /metrics shows arrives over OTLP with the same names, labels and values."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Metric

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otlp is not installed")

from agent.frames import without_snapshots
from otlp.receiver import OtlpReceiver
from replaywatch.agent.board import Board
from replaywatch.agent.exposition import Exposition
from replaywatch.agent.ledger import Ledger
from replaywatch.contract.errors import ConfigurationError
from replaywatch.otlp.push import OtlpPush, OtlpThread

NOW = 1_800_000_000 * 10**9


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as it:
        yield it


@pytest.fixture
def registry() -> CollectorRegistry:
    ledger = Ledger()
    board = Board(10, 10**12, ledger)
    board.add([without_snapshots(0, gpu_uuid="GPU-1")], "p", 0)
    found = CollectorRegistry(auto_describe=False)
    found.register(Exposition(board, ledger, {}, {"version": "1.2.3", "node": "gpu-01"}))
    return found


def push_of(receiver_url: str, registry: CollectorRegistry, **given: Any) -> OtlpPush:
    return OtlpPush(receiver_url, registry.collect, {"service.name": "replaywatch-agent"}, clock=lambda: NOW, **given)


def attributes(point: Any) -> dict[str, str]:
    return {a.key: a.value.string_value for a in point.attributes}


def test_counters_arrive_as_cumulative_sums(receiver: OtlpReceiver, registry: CollectorRegistry) -> None:
    assert push_of(receiver.url, registry).push()
    steps = receiver.metrics()["cudagraph_steps"]
    assert steps.sum.is_monotonic
    assert steps.sum.aggregation_temporality == 2
    values = {attributes(p)["mode"]: p.as_double for p in steps.sum.data_points}
    assert values == {"full": 90, "eager": 10}
    (point, _) = steps.sum.data_points
    assert attributes(point)["UUID"] == "GPU-1"
    assert "container" not in attributes(point)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (NOW, NOW)


def test_histograms_keep_their_buckets(receiver: OtlpReceiver, registry: CollectorRegistry) -> None:
    push_of(receiver.url, registry).push()
    metric = receiver.metrics()["cudagraph_step_seconds"]
    (point,) = metric.histogram.data_points
    assert metric.unit == "s"
    assert (point.count, sum(point.bucket_counts)) == (100, 100)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert point.sum == pytest.approx(0.3)
    assert not point.HasField("min")
    where = next(i for i, bound in enumerate(point.explicit_bounds) if bound >= 0.003)
    assert point.bucket_counts[where] == 100
    sizes = receiver.metrics()["cudagraph_batch_size"].histogram.data_points[0]
    assert list(sizes.explicit_bounds)[:3] == [1, 2, 4]
    assert sizes.bucket_counts[2] == 90


def test_gauges_and_info_arrive(receiver: OtlpReceiver, registry: CollectorRegistry) -> None:
    push_of(receiver.url, registry).push()
    assert receiver.metrics()["cudagraph_live_graphs"].gauge.data_points[0].as_double == 8
    (info,) = receiver.metrics()["replaywatch_agent_info"].gauge.data_points
    assert attributes(info) == {"version": "1.2.3", "node": "gpu-01"}
    (resource,) = receiver.requests[0].resource_metrics
    assert attributes(resource.resource)["service.name"] == "replaywatch-agent"


def test_every_series_of_the_exposition_arrives(receiver: OtlpReceiver, registry: CollectorRegistry) -> None:
    push_of(receiver.url, registry).push()
    shown: list[Metric] = [f for f in registry.collect() if f.samples]
    names = {f"{f.name}_info" if f.type == "info" else f.name for f in shown}
    assert set(receiver.metrics()) == names


def test_a_receiver_that_refuses_is_counted_and_told_once(
    receiver: OtlpReceiver, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [400, 400]
    push = push_of(receiver.url, registry)
    assert [push.push(), push.push(), push.push()] == [False, False, True]
    assert (push.pushed, push.failed) == (1, 2)
    assert len([r for r in caplog.records if r.name == "replaywatch.otlp"]) == 1


def test_headers_are_sent(receiver: OtlpReceiver, registry: CollectorRegistry) -> None:
    push_of(receiver.url, registry, headers={"Authorization": "Bearer x"}).push()
    assert receiver.headers[0]["Authorization"] == "Bearer x"


def test_a_thread_pushes_until_stopped(receiver: OtlpReceiver, registry: CollectorRegistry) -> None:
    thread = OtlpThread(push_of(receiver.url, registry), 0.02)
    thread.start()
    end = time.monotonic() + 10
    while len(receiver.requests) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    thread.stop(2)
    seen = len(receiver.requests)
    time.sleep(0.1)
    assert len(receiver.requests) == seen


@pytest.mark.parametrize("endpoint", ["", "localhost:4318", "grpc://x"])
def test_an_endpoint_that_cannot_work_is_refused(registry: CollectorRegistry, endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="OTLP endpoint"):
        push_of(endpoint, registry)
