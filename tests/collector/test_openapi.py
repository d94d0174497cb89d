from __future__ import annotations

import random
import time
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, body, eager_window, workload
from collector.polling import until
from replaywatch.collector.serve import CollectorHandle
from replaywatch.collector.tokens import create_token

EXAMPLES = 15


@pytest.fixture
def served(start: Start) -> tuple[CollectorHandle, dict[str, str]]:
    """A collector with an incident in it, and a token for everything."""
    handle = start()
    for i in range(4):
        window = eager_window(time.time_ns() - 6 * SECOND, random.Random(1), workload("pod-a"))
        web.post(f"{handle.url}/v1/batches", content=body([window], f"k{i}"), headers=HEADERS)
        ticks = handle.collector.detection.last_tick_ns or 0
        until(lambda seen=ticks: (handle.collector.detection.last_tick_ns or 0) > seen)
    made = create_token(handle.collector.store, "all", ["ingest", "read", "write"], 1)
    handle.collector.loops["tokens"].wake()
    headers = {"Authorization": f"Bearer {made}"}
    until(lambda: web.get(f"{handle.url}/v1/audit", headers=headers).status_code == 200)
    until(lambda: web.get(f"{handle.url}/v1/audit").status_code == 401)
    return handle, headers


def described(handle: CollectorHandle) -> dict[str, Any]:
    found: dict[str, Any] = web.get(f"{handle.url}/openapi.json").json()
    return found


def test_every_address_of_the_api_is_described_and_every_description_answers(
    served: tuple[CollectorHandle, dict[str, str]],
) -> None:
    handle, headers = served
    description = described(handle)
    routes = {r.path for r in handle.collector.web.routes if getattr(r, "path", "").startswith("/v1/")}  # type: ignore[attr-defined]
    assert routes == set(description["paths"])
    operations = [o["operationId"] for path in description["paths"].values() for o in path.values()]
    assert len(operations) == len(set(operations)) >= 14
    workload_id = web.get(f"{handle.url}/v1/workloads", headers=headers).json()["workloads"][0]["workload"]["id"]
    for path, methods in description["paths"].items():
        if "get" in methods:
            number = workload_id if "workloads" in path else "1"
            assert web.get(handle.url + path.replace("{id}", number), headers=headers).status_code == 200, path
        allowed = {m.upper() for m in methods} | ({"HEAD"} if "get" in methods else set())
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - allowed:
            assert web.CLIENT.request(method, handle.url + path, headers=headers).status_code == 405, (method, path)


def test_paging_shows_everything_once(served: tuple[CollectorHandle, dict[str, str]]) -> None:
    handle, headers = served
    for path, name in (("/v1/workloads", "workloads"), ("/v1/incidents", "incidents")):
        whole = web.get(f"{handle.url}{path}", headers=headers).json()
        seen, offset = [], 0
        while offset is not None:
            page = web.get(f"{handle.url}{path}?limit=1&offset={offset}", headers=headers).json()
            seen += page[name]
            offset = page["next_offset"]
        assert len(seen) == len(whole[name]) == whole["total"]


def test_incidents_can_be_narrowed(served: tuple[CollectorHandle, dict[str, str]]) -> None:
    handle, headers = served

    def total(query: str) -> int:
        return int(web.get(f"{handle.url}/v1/incidents?{query}", headers=headers).json()["total"])

    assert total("detector=disabled") == 1
    assert total("detector=disabled&severity=info") == 0
    assert total("detector=nothing") == 0
    assert total("state=open&state=closed") == total("state=open") > 0


def sent(case: Any, headers: dict[str, str]) -> Any:
    """A made-up request, sent by the client of the other tests."""
    made = case.as_transport_kwargs(headers=headers)
    content = made.get("data")
    given = {name: made.get(name) for name in ("params", "headers", "json")}
    if content is not None:
        given |= {"content": content if isinstance(content, (bytes, str)) else repr(content)}
    fit = {str(k): str(v).encode("latin-1", "replace") for k, v in (given.pop("headers") or {}).items()}
    try:
        return web.CLIENT.request(made["method"], made["url"], headers=fit, **given)
    except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError):
        assume(False)
        raise


class TestFuzz:
    """Requests made from the description, and requests that break it: each is answered as described, none with 500."""

    def test_every_answer_is_one_that_is_described(self, served: tuple[CollectorHandle, dict[str, str]]) -> None:
        handle, headers = served
        schema = schemathesis.openapi.from_dict(described(handle))
        schema.config.update(base_url=handle.url)
        modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
        statuses: dict[int, int] = {}
        for result in schema.get_all_operations():
            operation = result.ok()
            for mode in modes:
                self._fuzz(operation, mode, headers, statuses)
        assert statuses.get(200, 0) > 20
        assert statuses.get(400, 0) > 20
        assert not [s for s in statuses if s >= 500]
        assert web.get(f"{handle.url}/readyz").status_code == 200

    def _fuzz(self, operation: Any, mode: Any, headers: dict[str, str], statuses: dict[int, int]) -> None:
        quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=quiet)
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: Any) -> None:
            answer = sent(case, headers)
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            described_statuses = set(operation.definition.raw["responses"])
            assert str(answer.status_code) in described_statuses | {"405"}, (case.as_curl_command(), answer.text)
            if answer.status_code >= 400:
                assert answer.json()["error"]["message"]

        try:
            run()
        except Exception as error:
            # An operation without parameters has nothing that could be broken.
            if type(error).__name__ not in ("Unsatisfiable", "InvalidArgument"):
                raise


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_query_is_answered_with_a_result_or_a_sentence(
    served: tuple[CollectorHandle, dict[str, str]], data: st.DataObject
) -> None:
    handle, headers = served
    paths = {p: m["get"] for p, m in described_once(handle).items() if "get" in m}
    path = data.draw(st.sampled_from(sorted(paths)))
    names = [p["name"] for p in paths[path]["parameters"] if p["in"] == "query"]
    values = st.text(max_size=20) | st.integers().map(str) | st.sampled_from(["", "NaN", "1e999", "\x00", "٣", "-0"])
    query = data.draw(st.dictionaries(st.sampled_from(names), values, max_size=3)) if names else {}
    number = data.draw(st.text(max_size=10) | st.integers().map(str))
    from urllib.parse import quote

    answer = web.get(handle.url + path.replace("{id}", quote(number, safe="")), params=query, headers=headers)
    assert answer.status_code in (200, 400, 404, 307)
    if answer.status_code in (400, 404):
        assert answer.json()["error"]["message"]


_DESCRIBED: dict[str, Any] = {}


def described_once(handle: CollectorHandle) -> dict[str, Any]:
    if not _DESCRIBED:
        _DESCRIBED.update(described(handle)["paths"])
    return _DESCRIBED
