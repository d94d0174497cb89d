from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.material import SECOND, batch, blind_window, eager_window, healthy_window, overflow_window, workload
from collector.test_batches import JSON, KNOWN, RNG
from replaywatch.collector.quick_decode import decode_quickly
from replaywatch.contract.device import DeviceState
from replaywatch.contract.errors import WireError
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.window import Dispatch, Observation, ProbeCost, Timing, TracedWork, Window, Workload
from replaywatch.contract.wire import Batch, decode, encode

WHO = workload("pod-ä")
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
COUNTS = st.integers(0, 1 << 40)


def outcome(read: Any, content: bytes) -> tuple[str, object]:
    try:
        return "batch", read(content)
    except WireError as error:
        return type(error).__name__, str(error)


def same(content: bytes) -> None:
    assert outcome(decode_quickly, content) == outcome(decode, content)


def test_plausible_batches_are_read_as_the_contract_reads_them() -> None:
    start = 1_700_000_000 * SECOND
    windows = [
        healthy_window(start, RNG, WHO),
        eager_window(start, RNG, WHO),
        overflow_window(start, RNG, WHO, 0.4),
        blind_window(start, WHO),
    ]
    content = encode(batch(windows, "k", 5))
    assert decode_quickly(content) == decode(content) == batch(windows, "k", 5)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    buckets = draw(st.dictionaries(st.integers(0, 512), COUNTS, max_size=4))
    zero = draw(COUNTS)
    return Histogram(sum(buckets.values()) + zero, draw(INTEGERS), zero, buckets)


COUNTED = st.none() | st.dictionaries(st.text(max_size=8), COUNTS, max_size=3)
SIZES = st.none() | st.dictionaries(INTEGERS, COUNTS, max_size=3)
WINDOWS = st.builds(
    Window,
    workload=st.builds(Workload, pod=st.none() | st.text(max_size=8), rank=st.none() | INTEGERS),
    start_ns=INTEGERS,
    end_ns=INTEGERS,
    origin=st.sampled_from(["probe", "trace", "log", "metrics"]),
    dispatch=st.builds(Dispatch, steps=COUNTED, batch_sizes=SIZES, replays=st.none() | INTEGERS),
    timing=st.builds(
        Timing,
        replay=st.none() | histograms(),
        step_by_mode=st.none() | st.dictionaries(st.text(max_size=5), histograms(), max_size=2),
    ),
    traced=st.none()
    | st.builds(TracedWork, steps=INTEGERS, span_sq_ns2=st.floats(-1e300, 1e300), sync_ns=st.none() | INTEGERS),
    cost=st.none() | st.builds(ProbeCost, hook_ns=INTEGERS),
    observations=st.lists(st.builds(Observation, st.text(max_size=5), st.text(max_size=5)), max_size=2).map(tuple),
    device=st.none()
    | st.builds(
        DeviceState, power_watts=st.none() | st.floats(0, 1e6), throttle_reasons=st.none() | st.just(("idle",))
    ),
)


@given(st.lists(WINDOWS, max_size=3), st.text(max_size=10))
def test_any_batch_is_read_as_the_contract_reads_it(windows: list[Window], key: str) -> None:
    same(encode(Batch(key=key, sent_ns=1, windows=tuple(windows))))


@given(st.binary(max_size=200))
def test_any_bytes_end_as_the_contract_ends_them(content: bytes) -> None:
    same(content)


ODD = st.sampled_from(
    [1.0, 1e400, 1 << 63, -(1 << 63), (1 << 63) - 1, True, None, "x" * 2001, "x" * 2000, "é" * 2000, {}]
)
SPLICES = st.sampled_from(
    [b"NaN", b"-0", b"1.0", b"1e2", b"01", b'"\\ud800"', b'"\\u0000"', b"[[[[]]]]", b"\xff", b"}"]
)


@settings(max_examples=300)
@given(st.data(), JSON | ODD)
def test_any_value_in_any_place_ends_as_the_contract_ends_it(data: st.DataObject, value: object) -> None:
    content = json.loads(json.dumps(KNOWN))
    place = content
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    same(json.dumps(content).encode())


@settings(max_examples=200)
@given(st.integers(0, 2000), SPLICES, st.integers(0, 30))
def test_any_splice_ends_as_the_contract_ends_it(at: int, splice: bytes, skipped: int) -> None:
    content = json.dumps(KNOWN).encode()
    at %= len(content)
    same(content[:at] + splice + content[at + skipped :])


@pytest.mark.parametrize("splice", [b"1.0", b"1e0", b"true", b"NaN", b'"1"', b"9223372036854775808", b"1" * 5000])
def test_numbers_that_are_no_integers_are_refused(splice: bytes) -> None:
    content = json.dumps({**KNOWN, "sent_ns": 4242}).encode().replace(b"4242", splice, 1)
    same(content)
    with pytest.raises(WireError):
        decode_quickly(content)


def test_unknown_keys_are_ignored_and_a_later_duplicate_wins() -> None:
    content = json.dumps({**KNOWN, "colour": {"deep": [1, {"x": None}]}}).encode()
    same(content)
    same(content[:-1] + b',"sent_ns":7}')
    assert decode_quickly(content[:-1] + b',"sent_ns":7}').sent_ns == 7


def test_maps_beyond_the_bound_are_refused() -> None:
    content = json.loads(json.dumps(KNOWN))
    content["windows"][0]["dispatch"]["fallbacks"] = {str(i): 1 for i in range(4097)}
    same(json.dumps(content).encode())
    with pytest.raises(WireError, match="4097 entries"):
        decode_quickly(json.dumps(content).encode())
