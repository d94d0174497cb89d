from __future__ import annotations

import json
import re
import socket
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, body, eager_window, healthy_window, workload
from collector.polling import until
from collector.test_batches import RNG, WINDOW
from replaywatch.collector.allowance import Allowances
from replaywatch.collector.serve import CollectorHandle
from replaywatch.collector.tokens import Token, create_token, list_tokens, revoke_token
from replaywatch.contract.errors import ConfigurationError

SILENCE = {"matchers": {"pod": "x"}, "ends": time.time() + 3600}


def token(handle: CollectorHandle, name: str, *scopes: str, **limits: Any) -> dict[str, str]:
    made = create_token(handle.collector.store, name, scopes, time.time_ns(), **limits)
    handle.collector.loops["tokens"].wake()
    until(lambda: handle.collector.loops["tokens"].trouble is None and _knows(handle, made))
    return {"Authorization": f"Bearer {made}"}


def _knows(handle: CollectorHandle, made: str) -> bool:
    headers = {"Authorization": f"Bearer {made}", "Content-Type": "text/plain"}
    put = web.CLIENT.put(f"{handle.url}/v1/incidents/1/acknowledgement", headers=headers)
    return put.status_code != 401


def send(handle: CollectorHandle, headers: dict[str, str], key: str = "k", windows: int = 1) -> int:
    content = body([WINDOW] * windows, key)
    return web.post(f"{handle.url}/v1/batches", content=content, headers={**HEADERS, **headers}).status_code


def test_without_tokens_reading_and_sending_are_open_and_changing_is_not(start: Start) -> None:
    handle = start()
    assert send(handle, {}) == 200
    assert web.get(f"{handle.url}/v1/workloads").status_code == 200
    assert web.post(f"{handle.url}/v1/silences", json=SILENCE).status_code == 401


def test_each_scope_opens_its_own_door(start: Start) -> None:
    handle = start()
    ingest, read, write = (token(handle, s, s) for s in ("ingest", "read", "write"))
    url = handle.url
    sent = {name: send(handle, h, f"k-{name}") for name, h in (("i", ingest), ("r", read), ("w", write), ("n", {}))}
    assert sent == {"i": 200, "r": 403, "w": 403, "n": 401}
    for path in ("/v1/workloads", "/v1/incidents", "/v1/audit", "/v1/senders", "/metrics"):
        statuses = [web.get(url + path, headers=h).status_code for h in (ingest, read, write, {})]
        assert statuses == [403, 200, 200, 401], path
    statuses = [web.post(f"{url}/v1/silences", json=SILENCE, headers=h).status_code for h in (ingest, read, write, {})]
    assert statuses == [403, 403, 201, 401]
    for path in ("/healthz", "/readyz", "/openapi.json", "/static/page.css", "/login"):
        assert web.get(url + path).status_code == 200, path


def test_a_revoked_token_is_worth_nothing_within_seconds(start: Start) -> None:
    handle = start()
    mine = token(handle, "mine", "ingest")
    token(handle, "other", "ingest")
    assert send(handle, mine, "a") == 200
    revoke_token(handle.collector.store, "mine", time.time_ns())
    handle.collector.loops["tokens"].wake()
    until(lambda: send(handle, mine, "b") == 401)
    with pytest.raises(ConfigurationError, match="no token named"):
        revoke_token(handle.collector.store, "mine", time.time_ns())
    assert [(t.name, t.revoked_ns is None) for t in list_tokens(handle.collector.store)] == [
        ("mine", False),
        ("other", True),
    ]


def test_the_store_holds_no_secret(start: Start) -> None:
    handle = start()
    secret = token(handle, "mine", "ingest")["Authorization"].rpartition("_")[2]
    with handle.collector.store.session() as session:
        rows = repr(session.execute(text("SELECT * FROM tokens")).all()) + repr(
            session.execute(text("SELECT * FROM audit")).all()
        )
    assert "mine" in rows
    assert secret not in rows


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "<b>", "a\n"])
def test_odd_names_and_scopes_of_tokens_are_refused(start: Start, name: str) -> None:
    store = start().collector.store
    with pytest.raises(ConfigurationError, match="name"):
        create_token(store, name, ["read"], 1)
    with pytest.raises(ConfigurationError, match="scopes"):
        create_token(store, "ok", ["root"], 1)
    create_token(store, "ok", ["read"], 1)
    with pytest.raises(ConfigurationError, match="choose another"):
        create_token(store, "ok", ["read"], 1)


@given(st.text(max_size=80))
def test_any_text_is_no_token(given_text: str) -> None:
    from replaywatch.collector.tokens import TokenBook

    book = TokenBook.__new__(TokenBook)
    book._tokens = {"0" * 12: (Token(id="0" * 12, name="n", scopes=("read",)), "0" * 64)}
    assert book.verify(given_text) is None
    assert book.verify(f"rw_{'0' * 12}_{given_text}") is None


def test_a_rate_and_a_quota_are_kept(start: Start) -> None:
    handle = start()
    slow = token(handle, "slow", "ingest", windows_per_second=1.0)
    assert [send(handle, slow, f"a{i}", 5) for i in range(3)] == [200, 200, 429]
    small = token(handle, "small", "ingest", windows_per_day=12)
    assert [send(handle, small, f"b{i}", 5) for i in range(3)] == [200, 200, 429]
    answer = web.post(f"{handle.url}/v1/batches", content=body([WINDOW] * 5, "b9"), headers={**HEADERS, **small})
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.json()["error"]["code"] == "limited"


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5 * SECOND)), max_size=40))
def test_an_allowance_is_never_exceeded_over_any_time(takes: list[tuple[int, int]]) -> None:
    allowances, who = Allowances(), Token(id="a", name="a", scopes=("ingest",), windows_per_second=4.0)
    now = first = 10**18
    taken = 0
    for windows, later in takes:
        now += later
        denied = allowances.take(who, windows, now)
        if denied is None:
            taken += windows
        else:
            assert denied.retry_seconds >= 1
            assert allowances.take(who, windows, now + denied.retry_seconds * SECOND) is None
            taken += windows
            now += denied.retry_seconds * SECOND
    # A full burst of ten seconds, the rate, and the one batch that may be larger than what is left.
    assert taken <= 40 + 4 * (now - first) / 1e9 + 40


def login(handle: CollectorHandle, secret: str, **headers: str) -> httpx.Response:
    answer = web.post(f"{handle.url}/login", data={"token": secret, "next": "/incidents"}, headers=headers)
    web.CLIENT.cookies.clear()
    return answer


def test_the_page_asks_for_a_token_and_keeps_it_where_no_script_reaches(start: Start) -> None:
    handle = start()
    secret = token(handle, "ann", "write")["Authorization"].removeprefix("Bearer ")
    assert web.get(f"{handle.url}/").status_code == 200  # no token may read yet, so that reading is open
    token(handle, "reader", "read")
    refused = web.get(f"{handle.url}/incidents?state=open")
    assert (refused.status_code, refused.headers["Location"]) == (303, "/login?next=/incidents%3Fstate%3Dopen")
    assert login(handle, "rw_000000000000_" + "x" * 43).status_code == 403
    answer = login(handle, secret)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/incidents")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    shown = {"Cookie": cookie.partition(";")[0]}
    assert web.get(f"{handle.url}/", headers=shown).status_code == 200
    assert web.get(f"{handle.url}/v1/incidents", headers=shown).status_code == 200
    assert web.post(f"{handle.url}/v1/silences", json=SILENCE, headers=shown).status_code == 403
    token(handle, "agent", "ingest")
    assert send(handle, shown) == 401


def test_a_form_from_elsewhere_changes_nothing(start: Start) -> None:
    handle = start()
    secret = token(handle, "ann", "write")["Authorization"].removeprefix("Bearer ")
    for i in range(3):
        window = eager_window(time.time_ns() - 6 * SECOND, RNG, workload("pod-a"))
        web.post(f"{handle.url}/v1/batches", content=body([window], f"k{i}"), headers=HEADERS)
        ticks = handle.collector.detection.last_tick_ns or 0
        until(lambda seen=ticks: (handle.collector.detection.last_tick_ns or 0) > seen)
    until(lambda: bool(web.get(f"{handle.url}/v1/incidents").json()["incidents"]))
    number = web.get(f"{handle.url}/v1/incidents").json()["incidents"][0]["id"]
    shown = {"Cookie": login(handle, secret).headers["Set-Cookie"].partition(";")[0]}
    mark = f"{handle.url}/incidents/{number}/mark"
    for given_csrf in ("", "0" * 64):
        data = {"mark": "acknowledge", "csrf": given_csrf}
        assert web.post(mark, data=data, headers=shown).status_code == 403
    assert web.post(mark, data={"mark": "acknowledge"}).status_code == 401
    page = web.get(f"{handle.url}/incidents/{number}", headers=shown).text
    match = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert match is not None
    done = web.post(mark, data={"mark": "acknowledge", "csrf": match[1]}, headers=shown)
    assert done.status_code == 303
    assert web.get(f"{handle.url}/v1/incidents/{number}").json()["acknowledged_by"] == "ann"
    audit = web.get(f"{handle.url}/v1/audit").json()["audit"]
    assert (audit[0]["who"], audit[0]["action"]) == ("ann", "incident acknowledged")
    assert login(handle, secret, **{"Sec-Fetch-Site": "cross-site"}).status_code == 400


@pytest.mark.parametrize(
    "after", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\r\nX: y"]
)
def test_a_login_leads_nowhere_else(start: Start, after: str) -> None:
    handle = start()
    secret = token(handle, "ann", "read")["Authorization"].removeprefix("Bearer ")
    answer = web.post(f"{handle.url}/login", data={"token": secret, "next": after})
    web.CLIENT.cookies.clear()
    assert answer.headers["Location"] == "/"


def test_a_name_that_was_made_to_lead_to_loopback_reads_nothing(start: Start) -> None:
    handle = start(public_url="https://rw.example/")
    for host, status in (("evil.example", 400), ("rw.example", 200), ("localhost", 200), ("127.0.0.1:8790", 200)):
        assert web.get(f"{handle.url}/v1/workloads", headers={"Host": host}).status_code == status


def test_no_other_origin_may_read(start: Start) -> None:
    handle = start()
    answer = web.get(f"{handle.url}/v1/workloads", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    asked = web.CLIENT.options(f"{handle.url}/v1/silences", headers={"Origin": "https://evil.example"})
    assert asked.status_code in (400, 405)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../store.py",
        "/static/..%2fstore.py",
        "/static/%2e%2e/store.py",
        "/static//etc/passwd",
        "/static/....//store.py",
        "/incidents/..%2f..%2fetc%2fpasswd",
    ],
)
def test_paths_that_climb_find_nothing(start: Start, path: str) -> None:
    host, port = start().url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 5) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.split(b" ")[1] in (b"404", b"400", b"307")
    assert b"import" not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize("text_given", ["'; DROP TABLE incidents; --", "a' OR '1'='1", "%' UNION SELECT 1 --", "\\x00"])
def test_texts_that_look_like_sql_are_texts(start: Start, text_given: str) -> None:
    handle = start()
    who = workload(text_given.replace("\x00", ""))
    assert send_windows(handle, [healthy_window(time.time_ns() - 6 * SECOND, RNG, who)]) == 200
    for name in ("workload", "detector"):
        answer = web.get(f"{handle.url}/v1/incidents", params={name: text_given})
        assert (answer.status_code, answer.json()["total"]) == (200, 0)
    for name in ("q", "namespace", "node"):
        assert web.get(f"{handle.url}/v1/workloads", params={name: text_given}).status_code == 200
    assert web.get(f"{handle.url}/readyz").status_code == 200


def send_windows(handle: CollectorHandle, windows: list[Any]) -> int:
    return web.post(f"{handle.url}/v1/batches", content=body(windows, "sql"), headers=HEADERS).status_code


def test_slow_senders_do_not_keep_others_out(start: Start) -> None:
    handle = start()
    host, port = handle.url.removeprefix("http://").split(":")
    lines = []
    for _ in range(50):
        line = socket.create_connection((host, int(port)), 5)
        line.sendall(b"POST /v1/batches HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        lines.append(line)
    began = time.monotonic()
    assert send(handle, {}, "quick") == 200
    assert time.monotonic() - began < 2
    for line in lines:
        line.close()


@pytest.mark.parametrize(
    ("before", "begun"),
    [
        (b"", b""),
        (b"", b"POST /v1/batches HTTP/1.1\r\nHost: localhost\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /healthz HTTP/1.1\r\n"),
    ],
)
def test_a_head_that_never_ends_is_cut_off(start: Start, before: bytes, begun: bytes) -> None:
    handle = start(head_seconds=0.3)
    host, port = handle.url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), 10) as line:
        line.sendall(before)
        while before and not answer.endswith(b"}"):
            answer += line.recv(4096)
        assert answer.count(b"200 OK") == (1 if before else 0)
        line.sendall(begun)
        while part := line.recv(4096):  # until the collector closes it
            answer += part
    assert b"408 Request Timeout" in answer
    assert answer.endswith(b'"message":"the head of the request took too long"}}')


def test_a_trickling_head_gets_no_more_time_than_a_silent_one(start: Start) -> None:
    handle = start(head_seconds=0.5)
    host, port = handle.url.removeprefix("http://").split(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port)), 5) as line, suppress(ConnectionError):
        line.sendall(b"GET /healthz HTTP/1.1\r\n")
        while time.monotonic() - began < 5:
            line.sendall(b"X-More: x\r\n")
            time.sleep(0.05)
    assert 0.3 < time.monotonic() - began < 3


def test_a_connection_that_is_used_again_and_again_is_not_cut_off(start: Start) -> None:
    handle = start(head_seconds=0.3)
    with httpx.Client(base_url=handle.url, trust_env=False) as client:
        for _ in range(8):
            assert client.get("/healthz").status_code == 200
            time.sleep(0.1)


def test_a_batch_that_is_replayed_by_somebody_else_has_no_effect(start: Start) -> None:
    handle = start()
    first, second = token(handle, "a", "ingest"), token(handle, "b", "ingest")
    content = body([WINDOW], "same")
    answers = [
        web.post(f"{handle.url}/v1/batches", content=content, headers={**HEADERS, **h}).json()["duplicate"]
        for h in (first, first, second)
    ]
    assert answers == [False, True, True]


def test_deep_bodies_of_changes_are_refused(start: Start) -> None:
    handle = start()
    write = token(handle, "w", "write")
    url = f"{handle.url}/v1/silences"
    for content in (b"[" * 60_000, b"{" * 100, b"null", b"[]", b'"x"', b"\xff", b"x" * 70_000):
        answer = web.post(url, content=content, headers={**write, "Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "parameter")
    text_only = web.post(url, content=json.dumps(SILENCE), headers={**write, "Content-Type": "text/plain"})
    assert text_only.status_code == 400
