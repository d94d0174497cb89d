from __future__ import annotations

import gzip
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, batch, healthy_window, workload
from collector.polling import until
from collector.test_batches import LIMITS
from replaywatch.collector.arrival import SKEW_TOLERANCE_NS, clock_shift_ns, read_batch
from replaywatch.contract.wire import encode

NOW = 1_800_000_000 * SECOND


def read(end_ns: int, sent_ns: int, received_ns: int = NOW) -> tuple[int, int]:
    window = healthy_window(end_ns - 5 * SECOND, random.Random(1), workload("a"))
    content = encode(batch([window], "k", sent_ns))
    (got,) = read_batch(content, is_gzip=False, limits=LIMITS, received_ns=received_ns).batch.windows
    return got.start_ns, got.end_ns


@pytest.mark.parametrize("skew", [-86400, -3600, -61, 61, 3600, 86400])
def test_a_clock_that_is_off_is_set_right_ahead_as_well_as_behind(skew: int) -> None:
    theirs = NOW + skew * SECOND
    assert read(theirs - 10 * SECOND, theirs) == (NOW - 15 * SECOND, NOW - 10 * SECOND)


def test_a_batch_that_waited_for_hours_stays_in_its_place() -> None:
    assert read(NOW - 7200 * SECOND, NOW - SECOND)[1] == NOW - 7200 * SECOND


@pytest.mark.parametrize("delay", [0, 1, 30, 44])
def test_a_slow_upload_moves_nothing(delay: int) -> None:
    assert read(NOW - 60 * SECOND, NOW - delay * SECOND)[1] == NOW - 60 * SECOND


def test_a_sender_that_does_not_say_when_it_sent_is_believed_unless_it_is_ahead() -> None:
    assert read(NOW - 86400 * SECOND, 0)[1] == NOW - 86400 * SECOND
    assert read(NOW + 3600 * SECOND, 0)[1] == NOW


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_a_shift_is_what_makes_sending_and_receiving_meet(sent_ns: int, received_ns: int) -> None:
    shift_ns = clock_shift_ns(sent_ns, received_ns)
    assert shift_ns in (0, received_ns - sent_ns)
    if sent_ns > 0:
        assert abs(received_ns - sent_ns - shift_ns) <= SKEW_TOLERANCE_NS


def test_clocks_are_shown_by_node_and_as_a_metric(start: Start) -> None:
    handle = start()
    now = time.time_ns()
    for node, skew in (("good", 0), ("behind", -600)):
        theirs = now + skew * SECOND
        window = healthy_window(theirs - 5 * SECOND, random.Random(1), workload(node, node=node))
        content = gzip.compress(encode(batch([window], node, theirs)))
        assert web.post(f"{handle.url}/v1/batches", content=content, headers=HEADERS).status_code == 200
    senders = {s["node"]: s["clock_skew_seconds"] for s in web.get(f"{handle.url}/v1/senders").json()["senders"]}
    assert abs(senders["good"]) < 5
    assert 595 < senders["behind"] < 610
    metrics = web.get(f"{handle.url}/metrics").text
    value = next(line for line in metrics.splitlines() if line.startswith("replaywatch_collector_clock_skew_seconds"))
    assert 595 < float(value.split()[-1]) < 610
    until(lambda: len(handle.collector.detection.view.workloads) == 2)
    ends = [w.recent.end_ns for w in handle.collector.detection.view.workloads]
    assert all(abs(end - now) < 20 * SECOND for end in ends)


def test_windows_in_any_order_add_up_to_the_same(start: Start) -> None:
    handle = start()
    handle.collector.loops["detection"].stop()
    now = time.time_ns()
    order = list(range(40))
    random.Random(5).shuffle(order)
    for i in order:
        window = healthy_window(now - (i + 1) * 5 * SECOND, random.Random(i), workload("a"))
        content = gzip.compress(encode(batch([window], f"k{i}", now)))
        assert web.post(f"{handle.url}/v1/batches", content=content, headers=HEADERS).status_code == 200
        handle.collector.detection.tick()
    (view,) = handle.collector.detection.view.workloads
    assert view.lifetime.dispatch.steps == {"full": 40 * 1494, "piecewise": 40 * 6, "eager": 0}
    assert (view.lifetime.start_ns, view.lifetime.end_ns) == (now - 200 * SECOND, now)
    assert view.recent.end_ns == now
