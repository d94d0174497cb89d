"""The wire form: what goes out comes back, and anything else is refused with a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.windows import WINDOW
from replaywatch.contract.errors import SchemaVersionError, WireError
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def _batch(*windows: Window) -> Batch:
    config = EngineConfig(engine="vllm", capture_sizes=(1, 2, 4), environment={"A": "b"})
    return Batch(key="k", sent_ns=1, windows=windows, fingerprints={"f": Fingerprint(cuda="13")}, configs={"c": config})


@given(st.lists(WINDOW, max_size=3))
def test_a_batch_comes_back_as_it_was(windows: list[Window]) -> None:
    batch = _batch(*windows)
    assert decode(encode(batch)) == batch


@given(st.binary(max_size=64))
def test_any_bytes_give_a_batch_or_a_wire_error(data: bytes) -> None:
    try:
        decode(data)
    except WireError as error:
        assert str(error)


@given(WINDOW, st.data())
def test_any_value_in_any_place_gives_a_batch_or_a_wire_error(window: Window, data: Any) -> None:
    body = json.loads(encode(_batch(window)))
    place = body["windows"][0]
    for _ in range(data.draw(st.integers(0, 2))):
        nested = [k for k, v in place.items() if isinstance(v, dict) and v]
        if not nested:
            break
        place = place[data.draw(st.sampled_from(nested))]
    if place:
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        decode(json.dumps(body).encode())
    except WireError as error:
        assert str(error)


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(SchemaVersionError, match="wire version 99 is not spoken here"):
        decode(b'{"v": 99, "key": "k", "sent_ns": 1, "windows": []}')


def test_unknown_keys_of_this_version_are_ignored() -> None:
    body = json.loads(encode(_batch()))
    body["later"] = {"x": 1}
    assert decode(json.dumps(body).encode()) == _batch()


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(WireError):
        decode(b'{"v": 1, "key": ' + b"[" * 100_000)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(WireError):
        decode(f'{{"v": 1, "key": "k", "sent_ns": {number}, "windows": []}}'.encode())


def test_a_histogram_whose_buckets_do_not_add_up_is_refused() -> None:
    window = {"workload": {}, "start_ns": 0, "end_ns": 1, "origin": "probe"}
    window["timing"] = {"replay": {"n": 3, "s": 3, "b": {"0": 1}}}  # type: ignore[assignment]
    with pytest.raises(WireError, match="add up"):
        decode(json.dumps({"v": 1, "key": "k", "sent_ns": 1, "windows": [window]}).encode())
