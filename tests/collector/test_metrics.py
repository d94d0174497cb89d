from __future__ import annotations

import random
import time

from prometheus_client.parser import text_string_to_metric_families

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, OFF, SECOND, body, eager_window, fleet, healthy_window, workload
from replaywatch.collector.serve import CollectorHandle
from replaywatch.contract.metrics import CATALOGUE, WORKLOAD_LABELS


def feed(handle: CollectorHandle, minutes: float = 4) -> None:
    """Play a small fleet, tick by tick."""
    handle.collector.loops["detection"].stop()
    for i, windows in enumerate(fleet(time.time_ns(), minutes)):
        answer = web.post(f"{handle.url}/v1/batches", content=body(windows, f"k{i}"), headers=HEADERS)
        assert answer.status_code == 200
        handle.collector.detection.tick()


def samples(handle: CollectorHandle) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(web.get(f"{handle.url}/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_exactly_the_collectors_rows_of_the_catalogue_are_exposed(start: Start) -> None:
    handle = start()
    feed(handle)
    found = samples(handle)
    wanted: dict[str, set[str]] = {}
    for row in CATALOGUE:
        if row.exposer == "agent":
            continue
        labels = set(row.labels) | (set(WORKLOAD_LABELS) if row.scope == "workload" else set())
        if row.kind == "histogram":
            wanted |= {f"{row.name}_bucket": labels | {"le"}, f"{row.name}_sum": labels, f"{row.name}_count": labels}
        else:
            wanted[row.name] = labels
    assert set(found) == set(wanted)
    for name, labels in wanted.items():
        assert all(set(sample[0]) == labels for sample in found[name]), name


def test_values_say_what_the_page_says(start: Start) -> None:
    handle = start()
    feed(handle)
    found = samples(handle)

    def one(name: str, **labels: str) -> float:
        (value,) = [v for have, v in found[name] if labels.items() <= have.items()]
        return value

    assert one("cudagraph_verdict", pod="search-5c6b8-m4z7t", verdict="finding") == 1
    assert one("cudagraph_verdict", pod="search-5c6b8-m4z7t", verdict="healthy") == 0
    low, mid, high = (
        one("cudagraph_recoverable_ratio", pod="search-5c6b8-m4z7t", bound=b) for b in ("low", "estimate", "high")
    )
    assert 0.6 < low <= mid <= high < 0.9
    assert one("cudagraph_finding", pod="search-5c6b8-m4z7t", detector="disabled", severity="page") == 1
    assert one("cudagraph_workload_info", pod="search-5c6b8-m4z7t", resolved_mode="NONE", driver="580.65") == 1
    assert one("cudagraph_capture_ceiling", pod="chat-7d9f4-x2kqp", unit="sequences") == 32
    assert one("cudagraph_batch_size_limit", pod="agents-66f9d-qq8wn") == 256
    assert one("cudagraph_workload_info", pod="search-5c6b8-m4z7t", node="gpu-02", config=OFF.id) == 1
    assert abs(time.time() - one("replaywatch_collector_last_tick_timestamp_seconds")) < 60
    assert one("replaywatch_collector_batches_total", outcome="accepted") == 48
    assert one("replaywatch_collector_incidents", severity="page") >= 1
    assert one("replaywatch_collector_detection_seconds_count") >= 48


def test_two_processes_with_the_same_labels_are_one_series(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    now, rng = time.time_ns() - 6 * SECOND, random.Random(1)
    pair = [healthy_window(now, rng, workload("p", pid=1)), eager_window(now, rng, workload("p", pid=2))]
    web.post(f"{handle.url}/v1/batches", content=body(pair, "k"), headers=HEADERS)
    handle.collector.detection.tick()
    assert len(handle.collector.detection.view.workloads) == 2
    verdicts = [labels for labels, _ in samples(handle)["cudagraph_verdict"] if labels["verdict"] == "healthy"]
    assert len(verdicts) == 1


def test_hostile_names_stay_inside_their_label(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    name = 'x"} 1\nevil_metric{a="b\\'
    window = healthy_window(time.time_ns() - 6 * SECOND, random.Random(1), workload(name))
    web.post(f"{handle.url}/v1/batches", content=body([window], "k"), headers=HEADERS)
    handle.collector.detection.tick()
    found = samples(handle)
    assert "evil_metric" not in found
    assert {labels["pod"] for labels, _ in found["cudagraph_verdict"]} == {name}


def test_outcomes_of_batches_are_counted(start: Start) -> None:
    handle = start(token="t")
    good = {**HEADERS, "Authorization": "Bearer t"}
    for content, headers in ((body([], "a"), good), (body([], "a"), good), (b"x", good), (b"x", HEADERS)):
        web.post(f"{handle.url}/v1/batches", content=content, headers=headers)
    counted = {labels["outcome"]: v for labels, v in samples(handle)["replaywatch_collector_batches_total"] if v}
    assert counted == {"accepted": 1, "duplicate": 1, "refused": 1, "unauthorized": 1}
