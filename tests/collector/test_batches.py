from __future__ import annotations

import gzip
import json
import random
import socket
import threading
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, batch, body, eager_window, healthy_window, workload
from replaywatch.collector.arrival import Limits, TooLarge, inflate, read_batch
from replaywatch.collector.bodies import batches_since
from replaywatch.collector.serve import CollectorHandle
from replaywatch.collector.tables import BatchRow, WindowRow, WorkloadRow
from replaywatch.contract.errors import WireError
from replaywatch.contract.window import Dispatch
from replaywatch.contract.wire import encode

RNG = random.Random(3)
WINDOW = healthy_window(1_700_000_000 * SECOND, RNG, workload("pod-a"))
PLAIN = {"Content-Type": "application/json"}
LIMITS = Limits(1 << 20, 1 << 21)


def post(handle: CollectorHandle, content: bytes, **headers: str) -> httpx.Response:
    sent = {**HEADERS, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return web.post(f"{handle.url}/v1/batches", content=content, headers=sent, timeout=20)


def stored(handle: CollectorHandle, table: Any) -> int:
    with handle.collector.store.session() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_a_batch_is_committed_before_it_is_acknowledged(start: Start) -> None:
    handle = start()
    answer = post(handle, body([WINDOW], "k1"))
    assert (answer.status_code, answer.json()["duplicate"], answer.json()["windows"]) == (200, False, 1)
    assert (stored(handle, WindowRow), stored(handle, WorkloadRow), stored(handle, BatchRow)) == (1, 1, 1)


def test_what_happens_to_graphs_by_owner_is_kept(start: Start) -> None:
    told = Dispatch(
        replays=29, instantiations=4, destroys=2, resets=1, replays_by_owner={"user": 7, "vllm": 22},
        instantiations_by_owner={"user": 1, "vllm": 3}, destroys_by_owner={"vllm": 2},
    )  # fmt: skip
    handle = start()
    post(handle, body([replace(WINDOW, dispatch=told)], "k1"))
    with handle.collector.store.session() as session:
        (kept,) = batches_since(session, 0, 0, 0)
    assert [window.dispatch for window in kept.windows] == [told]


def test_a_repeated_key_is_acknowledged_and_has_no_effect(start: Start) -> None:
    handle = start()
    post(handle, body([WINDOW], "k1"))
    again = post(handle, body([WINDOW, WINDOW], "k1"))
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert stored(handle, WindowRow) == 1


def test_the_same_key_sent_by_many_at_once_is_stored_once(start: Start) -> None:
    handle = start()
    answers: list[bool] = []
    content = body([WINDOW], "same")
    threads = [
        threading.Thread(target=lambda: answers.append(post(handle, content).json()["duplicate"])) for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] + [True] * 11
    assert stored(handle, WindowRow) == 1


def test_a_plain_body_is_as_good_as_gzip(start: Start) -> None:
    handle = start()
    answer = post(handle, encode(batch([WINDOW], "k")), Content_Encoding="identity")
    assert answer.status_code == 200


def test_keys_of_stored_batches_outlive_a_restart(start: Start) -> None:
    first = start()
    post(first, body([WINDOW], "k1"))
    first.stop()
    assert post(start(), body([WINDOW], "k1")).json()["duplicate"] is True


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([packer.compress(b"0" * (1 << 20)) for _ in range(size >> 20)]) + packer.flush()


def test_a_gzip_bomb_is_given_up_early() -> None:
    packed = bomb(256 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="once decompressed"):
            inflate(packed, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_is_answered_with_413_and_the_next_batch_is_served(start: Start) -> None:
    handle = start(inflated_max_bytes=1 << 20)
    answer = post(handle, bomb(64 << 20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert post(handle, body([WINDOW], "k")).status_code == 200


@given(st.binary(max_size=2000), st.integers(1, 1000))
def test_inflating_gives_the_content_or_refuses_by_size(content: bytes, limit: int) -> None:
    packed = gzip.compress(content)
    if len(content) <= limit:
        assert inflate(packed, limit) == content
    else:
        with pytest.raises(TooLarge):
            inflate(packed, limit)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_batch_or_a_wire_error(content: bytes, is_gzip: bool) -> None:
    try:
        read_batch(content, is_gzip=is_gzip, limits=LIMITS, received_ns=1)
    except WireError as error:
        assert str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KNOWN = json.loads(encode(batch([WINDOW], "k")))


@given(st.data(), JSON)
def test_any_value_in_any_place_is_a_batch_or_a_wire_error(data: st.DataObject, value: object) -> None:
    content = json.loads(json.dumps(KNOWN))
    place = content
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    try:
        read_batch(json.dumps(content).encode(), is_gzip=False, limits=LIMITS, received_ns=2 * 10**18)
    except WireError as error:
        assert str(error)


def changed(**window: object) -> bytes:
    content = json.loads(json.dumps(KNOWN))
    content["windows"][0].update(window)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "wire"),
        (b"[]", 400, "wire"),
        (b'{"v": 1}', 400, "wire"),
        (json.dumps({**KNOWN, "v": 2}).encode(), 409, "schema_version"),
        (json.dumps({**KNOWN, "key": ""}).encode(), 400, "wire"),
        (json.dumps({**KNOWN, "key": "k" * 201}).encode(), 400, "wire"),
        (b"[" * 100_000, 400, "wire"),
        (changed(start_ns="soon"), 400, "wire"),
        (changed(start_ns=-1), 400, "wire"),
        (changed(start_ns=2, end_ns=1), 400, "wire"),
        (changed(start_ns=0), 400, "wire"),
        (changed(config_id="c" * 65), 400, "wire"),
        (changed(workload={"pod": "a\x00b"}), 400, "wire"),
        (changed(workload={"pod": "\ud800"}), 400, "wire"),
        (json.dumps(KNOWN).encode().replace(b"pod-a", b"\xed\xa0\x80"), 400, "wire"),
        (json.dumps(KNOWN).encode("utf-16"), 400, "wire"),
        (changed(timing={"replay": {"n": 1, "s": 1, "b": {"1000000": 1}}}), 400, "wire"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(start: Start, content: bytes, status: int, code: str) -> None:
    handle = start()
    answer = post(handle, gzip.compress(content))
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert len(answer.json()["error"]["message"]) > 10
    assert stored(handle, WindowRow) == 0


def test_names_beyond_ascii_are_kept(start: Start) -> None:
    handle = start()
    who = workload("käse-🧀")
    assert post(handle, body([healthy_window(WINDOW.start_ns, RNG, who)], "k")).status_code == 200


def test_bad_requests_are_told_apart(start: Start) -> None:
    handle = start(body_max_bytes=4096)
    good = body([WINDOW], "k")
    assert post(handle, good, Content_Type="text/plain").status_code == 415
    assert post(handle, good, Content_Encoding="br").status_code == 415
    assert post(handle, b"x" * 5000, Content_Encoding="identity").status_code == 413
    assert post(handle, good[:-5]).status_code == 400
    assert post(handle, good + b"more").status_code == 400
    assert web.get(f"{handle.url}/v1/batches").status_code == 405
    chunks = (b"x" * 1000 for _ in range(10))
    assert web.post(f"{handle.url}/v1/batches", content=chunks, headers=PLAIN).status_code == 413


def test_a_token_is_asked_for_where_one_is_set(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("correct horse\n")
    handle = start(token_file=path)
    assert post(handle, body([WINDOW], "k")).status_code == 401
    assert post(handle, body([WINDOW], "k"), Authorization="Bearer wrong").status_code == 401
    assert post(handle, body([WINDOW], "k"), Authorization="Basic correct horse").status_code == 401
    assert post(handle, body([WINDOW], "k"), Authorization="Bearer correct horse").status_code == 200
    assert stored(handle, WindowRow) == 1


def test_a_clock_that_runs_ahead_is_pulled_back_to_now() -> None:
    now_ns = WINDOW.end_ns - 3600 * SECOND
    read = read_batch(encode(batch([WINDOW], "k")), is_gzip=False, limits=LIMITS, received_ns=now_ns).batch
    assert (read.windows[0].start_ns, read.windows[0].end_ns) == (now_ns - 5 * SECOND, now_ns)
    late = read_batch(encode(batch([WINDOW], "k")), is_gzip=False, limits=LIMITS, received_ns=now_ns + 10**15).batch
    assert late.windows[0] == WINDOW


def test_a_crowd_of_new_workloads_is_sent_away_and_known_ones_are_served(start: Start) -> None:
    handle = start(workloads_max=2)
    pods = [eager_window(WINDOW.start_ns, RNG, workload(f"pod-{i}")) for i in range(3)]
    assert post(handle, body(pods[:2], "k1")).status_code == 200
    handle.collector.loops["detection"].stop()
    handle.collector.detection.tick()
    refused = post(handle, body(pods[2:], "k2"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_workloads")
    assert post(handle, body(pods[:1], "k3")).status_code == 200


def test_a_sender_that_hangs_up_does_no_harm(start: Start) -> None:
    handle = start()
    host, port = handle.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as line:
        line.sendall(
            b"POST /v1/batches HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
        )
    assert post(handle, body([WINDOW], "k")).status_code == 200
