"""The ctypes border: the histogram layout, texts, and libraries that are missing or wrong."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.wire import decode_record
from replaywatch.probe.tracer import TracerUnavailable, as_result, open_tracer
from tracer import fake_world
from tracer.fake_world import World


@dataclass(frozen=True)
class _Holder:
    h: Histogram


_VALUES = st.one_of(
    st.integers(-10, 300),
    st.integers(0, 1 << 62),
    st.integers(0, 62).map(lambda e: 1 << e),
    st.integers(1, 400).map(lambda i: round(2.0 ** (i / 8))),
)


def _histograms(lists: list[list[int]]) -> list[Any]:
    return [fake_world.tracer().histogram(values) for values in lists]


@settings(max_examples=40, deadline=None)
@given(lists=st.lists(st.lists(_VALUES, max_size=80), min_size=1, max_size=20))
def test_native_histograms_equal_those_of_the_contract(world: World, lists: list[list[int]]) -> None:
    small = [[min(v, (1 << 55)) for v in values] for values in lists]  # so that a sum stays in 64 bits
    for values, native in zip(small, world.call(_histograms, small), strict=True):
        assert decode_record(_Holder, {"h": native}).h == Histogram.of(values)


def test_every_bucket_border_falls_as_in_the_contract(world: World) -> None:
    borders = [max(1, round(2.0 ** (i / 8)) + d) for i in range(8, 440) for d in (-1, 0, 1)]
    natives = world.call(_histograms, [[value] for value in borders])
    assert [decode_record(_Holder, {"h": n}).h for n in natives] == [Histogram.of([v]) for v in borders]


def test_a_missing_library_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TracerUnavailable, match="built without"):
        open_tracer(str(tmp_path / "libreplaywatch_tracer.so"))


def test_another_library_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "libreplaywatch_tracer.so"
    wrong.write_bytes(b"\x7fELF but not really")
    with pytest.raises(TracerUnavailable, match="cannot be loaded"):
        open_tracer(str(wrong))
    subprocess.run(
        ["c++", "-shared", "-fPIC", "-x", "c", "-", "-o", str(wrong)],
        input=b"int rw_tracer_abi_version(void){return 99;}",
        check=True,
    )
    with pytest.raises(TracerUnavailable, match="version 99"):
        open_tracer(str(wrong))


def test_a_window_with_reasons_alone_is_a_blind_spot() -> None:
    found = as_result({"reasons": ["a"], "refused": "b", "devices": []})
    assert found is not None
    assert found["blind"] == [["kernels", "a"], ["kernels", "b"]]
    assert as_result({"reasons": [], "devices": []}) is None


def _mark_cost_ns() -> float:
    tracer = fake_world.tracer()
    best = 1e9
    for _ in range(5):
        begun = time.process_time_ns()
        for _ in range(20_000):
            tracer.mark_step(1, "full")
        best = min(best, (time.process_time_ns() - begun) / 20_000)
    return best


def test_a_mark_costs_less_than_the_budget_of_a_replay_hook(world: World) -> None:
    assert world.call(_mark_cost_ns) < 1000


def _status() -> Any:
    return fake_world.tracer().status(), fake_world.tracer().live


def test_status_names_the_cupti_in_use(world: World) -> None:
    status, live = world.call(_status)
    assert status["cupti_version"] == 130001
    assert status["cupti_path"].endswith("libcupti.so.13")
    assert not live
