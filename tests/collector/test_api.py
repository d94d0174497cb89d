from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from sqlalchemy import text

from collector import web
from collector.conftest import Start
from collector.material import SECOND, body, eager_window, workload
from collector.polling import until
from collector.test_metrics import HEADERS, feed
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.window import Timing


def test_workloads_are_listed_worst_first_with_pages(start: Start) -> None:
    handle = start()
    feed(handle)
    whole = web.get(f"{handle.url}/v1/workloads").json()
    assert whole["schema_version"] == 1
    assert whole["total"] == 6
    assert whole["workloads"][0]["severity"] == "page"
    assert whole["loss"]["gpus"] > 0.7
    second = web.get(f"{handle.url}/v1/workloads?limit=2&offset=2").json()["workloads"]
    assert [w["workload"]["id"] for w in second] == [w["workload"]["id"] for w in whole["workloads"][2:4]]
    blind = web.get(f"{handle.url}/v1/workloads?verdict=blind").json()
    assert [w["workload"]["pod"] for w in blind["workloads"]] == ["audit-0"]


def test_a_workload_and_its_series_add_up(start: Start) -> None:
    handle = start()
    feed(handle)
    (view,) = [v for v in handle.collector.detection.view.workloads if v.workload.pod == "agents-66f9d-qq8wn"]
    found = web.get(f"{handle.url}/v1/workloads/{view.id}").json()
    assert found["verdict"] == "finding"
    assert found["config"]["max_batch_size"] == 256
    lifetime = view.lifetime.dispatch.steps
    assert lifetime is not None
    for points in (1, 7, 1000):
        series = web.get(f"{handle.url}/v1/workloads/{view.id}/windows?points={points}").json()["points"]
        assert len(series) <= points
        for mode in ("full", "eager"):
            assert sum(p["steps"][mode] for p in series) == lifetime[mode]
        assert sum(p["windows"] for p in series) == 48
    middle = (view.lifetime.start_ns + view.lifetime.end_ns) / 2e9
    halves = [
        web.get(f"{handle.url}/v1/workloads/{view.id}/windows?{bound}={middle}").json()["points"]
        for bound in ("from", "to")
    ]
    assert sum(p["windows"] for half in halves for p in half) == 48


def test_steps_that_only_an_engine_timed_have_a_time_everywhere(start: Start) -> None:
    """An engine without a single replay: its hooks time steps by mode, and nothing else does."""
    handle = start()
    handle.collector.loops["detection"].stop()
    timed = Timing(step_by_mode={"eager": Histogram.of([14_000_000] * 60)})
    made = eager_window(time.time_ns() - 30 * SECOND, random.Random(1), workload("eager-only"))
    content = body([replace(made, timing=timed, traced=None)], "k-eager-only")
    assert web.post(f"{handle.url}/v1/batches", content=content, headers=HEADERS).status_code == 200
    handle.collector.detection.tick()
    (listed,) = web.get(f"{handle.url}/v1/workloads").json()["workloads"]
    assert listed["recent"]["step_us"] == 14_000
    series = web.get(f"{handle.url}/v1/workloads/{listed['workload']['id']}/windows?points=5").json()["points"]
    assert [p["step_us"] for p in series] == [14_000]


def test_incidents_can_be_read_with_their_history(start: Start) -> None:
    handle = start()
    feed(handle)
    listed = web.get(f"{handle.url}/v1/incidents?state=open").json()["incidents"]
    assert {"disabled", "overflow"} <= {i["detector"] for i in listed}
    one = web.get(f"{handle.url}/v1/incidents/{listed[0]['id']}").json()
    assert one["history"][0]["event"] == "opened"
    assert one["finding"]["remedy"]
    assert web.get(f"{handle.url}/v1/incidents?workload=nobody").json()["incidents"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/workloads?limit=x",
        "/v1/workloads?limit=-1",
        "/v1/workloads?limit=99999",
        "/v1/incidents?state=broken",
        "/v1/workloads/a/windows?from=yesterday",
        "/v1/workloads/a/windows?from=nan",
        "/v1/workloads/a/windows?to=1e300",
        "/v1/workloads/a/windows?points=1e3",
    ],
)
def test_parameters_that_make_no_sense_are_refused(start: Start, path: str) -> None:
    answer = web.get(start().url + path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "parameter")


@pytest.mark.parametrize(
    "path", ["/v1/workloads/a", "/v1/workloads/a/windows", "/v1/incidents/7", "/v1/incidents/'--", "/v1"]
)
def test_what_is_not_there_is_told_as_json(start: Start, path: str) -> None:
    answer = web.get(start().url + path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_health_tells_the_truth(start: Start) -> None:
    handle = start()
    until(lambda: web.get(f"{handle.url}/readyz").status_code == 200)
    assert web.get(f"{handle.url}/healthz").json()["ok"] is True
    with handle.collector.store.session() as session, session.begin():
        session.execute(text("drop table alembic_version"))
    broken = web.get(f"{handle.url}/readyz")
    assert broken.status_code == 503
    assert "store" in broken.json()["trouble"]
    assert web.get(f"{handle.url}/healthz").status_code == 200
    handle.collector.loops["detection"].stop()
    dead = web.get(f"{handle.url}/healthz")
    assert dead.status_code == 503
    assert "detection" in dead.json()["trouble"]


def test_readiness_notices_ticks_that_stopped(start: Start) -> None:
    now = [time.time_ns()]
    handle = start(clock=lambda: now[0], tick_seconds=3600)
    until(lambda: web.get(f"{handle.url}/readyz").status_code == 200)
    now[0] += 36001 * 10**9
    assert "last tick" in web.get(f"{handle.url}/readyz").json()["trouble"]["detection"]
