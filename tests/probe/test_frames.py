"""What leaves the process is the contract's wire form, field by field, whatever the probe builds it with."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from dataclasses import fields
from numbers import Integral
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.harness import Listener, Pump, merged, run
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import (
    CAPTURE_OUTCOMES,
    FALLBACK_REASONS,
    OBSERVATION_KINDS,
    Dispatch,
    GraphMemory,
    ProbeCost,
    Timing,
    TracedWork,
    Window,
    Workload,
)
from replaywatch.contract.wire import WIRE_VERSION, decode, decode_record, jsonable
from replaywatch.probe import snapshots, windows, workload
from replaywatch.probe.counts import Tally
from replaywatch.probe.outlet import MAX_FRAME_BYTES, Outlet, encode

PROGRAM = """
import replaywatch.probe as probe; probe.start()
import torch, time, torch._inductor.cudagraph_trees as trees
torch.cuda.init()
made = [torch.cuda.CUDAGraph() for _ in range(3)]
for graph in made:
    with torch.cuda.graph(graph):
        torch.cuda.reserved_bytes += 4096
for _ in range(50):
    made[0].replay(); time.sleep(0.002)
manager = trees.CUDAGraphTreeManager(mutating=["m"])
for _ in range(4):
    manager.run("a", function_id="f"); manager.run("a", function_id="m")
probe.record_step("full", batch=8, real_tokens=8, padded_tokens=16, phase="decode")
probe.record_step("eager", batch=300, real_tokens=300, reason="above_ceiling", phase="decode", component="draft")
probe.record_step("eager", batch=300, reason="above_ceiling", phase="decode", component="draft")
time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    with Listener(tmp_path_factory.mktemp("frames") / "agent.sock") as listener:
        pump = Pump(listener)
        run(PROGRAM, listener, REPLAYWATCH_PROBE_TIME_ONE_IN="4", REPLAYWATCH_PROBE_MODEL_NAME="a-model", RANK="3")
        return pump.stop()


def test_every_field_of_every_frame_survives_the_contract(sent: list[bytes]) -> None:
    """A key that the contract does not know would be dropped on decoding, and show as a difference here."""
    assert sent
    for frame in sent:
        raw = json.loads(frame)
        assert len(raw["windows"]) == 1
        again = {"v": WIRE_VERSION, **jsonable(decode(frame))}
        for body in (raw, again):
            for window in body["windows"]:
                _drop_defaults(window)
            for config in body.get("configs", {}).values():
                for name in [n for n, value in config.items() if value == {}]:
                    del config[name]
            for name in ("configs", "fingerprints"):
                body[name] = body.get(name, {})
        assert again == raw


def _drop_defaults(window: dict[str, object]) -> None:
    """The contract leaves values out that equal the default; the probe may write zeros of its own cost."""
    for name in ("cost", "traced"):
        part = window.get(name)
        if isinstance(part, dict):
            window[name] = {key: value for key, value in part.items() if value}
    for observation in window.get("observations", ()):  # type: ignore[attr-defined]
        if observation.get("count") == 1:
            del observation["count"]
    who = window["workload"]
    assert isinstance(who, dict)


def test_the_words_are_those_of_the_contract(sent: list[bytes]) -> None:
    for frame in sent:
        window = decode(frame).windows[0]
        assert set(window.dispatch.captures or ()) <= set(CAPTURE_OUTCOMES)
        assert set(window.dispatch.fallbacks or ()) <= set(FALLBACK_REASONS)
        assert {o.kind for o in window.observations} <= set(OBSERVATION_KINDS)
        assert window.start_ns < window.end_ns


def test_parts_and_phases_become_windows_of_their_own(sent: list[bytes]) -> None:
    batches = [decode(frame) for frame in sent]
    found = {(w.workload.component, w.workload.phase): w for b in batches for w in b.windows if w.dispatch.steps}
    draft = found["draft", None].dispatch
    assert draft.steps == {"eager": 2}
    assert draft.fallbacks == {"above_ceiling": 2}
    assert draft.batch_sizes == draft.eager_batch_sizes == {300: 2}
    assert draft.padded_tokens == draft.real_tokens == 300
    target = found[None, None].dispatch
    assert (target.real_tokens, target.padded_tokens, target.eager_batch_sizes) == (8, 16, None)
    for window in found.values():
        assert window.workload.rank == 3
        assert window.workload.model_name == "a-model"
        assert window.workload.gpu_uuid == "GPU-00000000-0000-0000-0000-000000000000"


def test_snapshots_come_once_with_the_ids_that_windows_point_to(sent: list[bytes]) -> None:
    batches = [decode(frame) for frame in sent]
    prints = {i: f for b in batches for i, f in b.fingerprints.items()}
    configs = {i: c for b in batches for i, c in b.configs.items()}
    assert all(i == f.id for i, f in prints.items())
    assert all(i == c.id for i, c in configs.items())
    assert sum(bool(b.fingerprints) for b in batches) == len(prints)
    assert {b.windows[0].fingerprint_id for b in batches} <= set(prints)
    assert {b.windows[0].config_id for b in batches} <= set(configs)
    assert {f.torch for f in prints.values()} == {"2.13.0"}
    assert {f.gpu_model for f in prints.values()} == {"Simulated device"}


def test_snapshots_are_repeated_where_other_windows_are_sent_beside_the_main_one(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        pump = Pump(listener)
        run(
            """
            import replaywatch.probe as probe; probe.start()
            import time
            from replaywatch.probe import emission, session
            emission.REPEAT_SNAPSHOTS = 4
            end = time.time() + 20
            while time.time() < end and session.current().outlet.sent < 24:
                probe.record_step("full", batch=4); probe.record_step("eager", batch=1, phase="prefill")
                time.sleep(0.005)
            """,
            listener,
            None,
            REPLAYWATCH_PROBE_WINDOW_SECONDS="0.05",
        )
        batches = [decode(frame) for frame in pump.stop()]
    assert len({b.windows[0].config_id for b in batches}) == 1
    assert sum(bool(b.fingerprints) and bool(b.configs) for b in batches) >= 3
    assert sum(bool(b.fingerprints) for b in batches) < len(batches) / 4


def test_keys_of_frames_differ(sent: list[bytes]) -> None:
    keys = [decode(frame).key for frame in sent]
    assert len(set(keys)) == len(keys)


def test_the_fields_of_snapshots_are_those_of_the_contract() -> None:
    assert {f.name for f in fields(Fingerprint)} == set(snapshots.FINGERPRINT_FIELDS)
    assert {f.name for f in fields(EngineConfig)} == set(snapshots.CONFIG_FIELDS)


@given(st.dictionaries(st.sampled_from(snapshots.CONFIG_FIELDS[1:6]), st.one_of(st.none(), st.text(max_size=9))))
def test_ids_are_the_contracts(record: dict[str, str | None]) -> None:
    record.pop("graphs_enabled", None)
    assert snapshots.digest(snapshots.CONFIG_FIELDS, dict(record)) == EngineConfig(**record).id  # type: ignore[arg-type]


@given(st.lists(st.integers(-5, 1 << 56), max_size=60), st.integers(0, 60))
def test_a_tally_is_the_contracts_histogram(values: list[int], one_by_one: int) -> None:
    tally = Tally()
    for value in values[:one_by_one]:
        tally.add(value)
    tally.add_all(values[one_by_one:])
    taken = tally.take()
    assert (decode_record(Window, _window_with(taken)).timing.step_period if taken else Histogram()) == Histogram.of(
        values
    )
    assert tally.take() is None


def test_a_tally_that_is_taken_while_another_thread_adds_is_whole() -> None:
    tally, on, added = Tally(), threading.Event(), 0

    def add() -> None:
        nonlocal added
        while not on.is_set():
            added += 1
            tally.add(added * 37 % 1_000_003)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=add)
    thread.start()
    end, found, torn = time.monotonic() + 0.5, 0, 0
    try:
        while time.monotonic() < end:
            taken = tally.take() or {"n": 0, "b": {}}
            found += taken["n"]  # type: ignore[operator]
            torn += taken["n"] != sum(taken["b"].values()) + taken.get("z", 0)  # type: ignore[attr-defined, operator]
    finally:
        on.set()
        thread.join()
        sys.setswitchinterval(usual)
    assert torn == 0
    assert 0.99 * added <= found + tally.count <= added


def _window_with(histogram: object) -> dict[str, object]:
    return {"workload": {}, "start_ns": 0, "end_ns": 1, "origin": "probe", "timing": {"step_period": histogram}}


def test_merged_stretches_add_up_as_the_contract_merges_them() -> None:
    one = {"traced": {"method": "cupti", "steps": 2, "span_ns": 5, "span_sq_ns2": 1.5},
           "timing": {"launch_gap": {"n": 2, "s": 3, "b": {"4": 2}}}}  # fmt: skip
    two = {
        "traced": {"method": "cupti", "steps": 3, "busy_ns": 1},
        "timing": {"launch_gap": {"n": 1, "s": 0, "b": {}, "z": 1}},
    }
    traced, timing = windows.merge_traced([one, two])
    assert decode_record(TracedWork, traced) == TracedWork(
        method="cupti", steps=5, span_ns=5, span_sq_ns2=1.5, busy_ns=1
    )
    assert decode_record(Timing, timing).launch_gap == Histogram(3, 3, 1, {4: 2})


@given(st.integers(0, 4000), st.integers(0, 300))
def test_no_frame_is_longer_than_a_datagram_may_be(observations: int, width: int) -> None:
    body = {
        "workload": {"pid": 1}, "start_ns": 0, "end_ns": 1, "origin": "probe", "dispatch": {"replays": 7},
        "observations": [{"kind": "error", "detail": "x" * width + str(i), "count": i + 1} for i in range(observations)]
    }  # fmt: skip
    data = encode(windows.frame("k", 0, body))
    assert len(data) <= MAX_FRAME_BYTES
    assert decode(data).windows[0].dispatch.replays == 7


def frame_of(key: str, **parts: object) -> dict[str, object]:
    return windows.frame(key, 0, {"workload": {"pid": 1}, "start_ns": 0, "end_ns": 1, "origin": "probe", **parts})


def test_a_frame_that_no_datagram_can_hold_is_dropped_and_holds_nothing_up(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        outlet = Outlet(str(listener.path))
        assert outlet.send(frame_of("first"))
        assert outlet._socket is not None
        outlet._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # a host with small buffers
        assert not outlet.send(frame_of("long", observations=[{"kind": "error", "detail": "x" * 30_000}]))
        assert outlet.send(frame_of("next"))
        assert [json.loads(f)["key"] for f in listener.frames()] == ["first", "next"]
        assert (outlet.sent, outlet.dropped, outlet.waiting) == (2, 1, 0)
        outlet.close()


class Number:
    """An integer as another library makes them."""

    def __int__(self) -> int:
        return 7


Integral.register(Number)


def test_integers_of_other_libraries_leave_as_plain_ones() -> None:
    assert decode(encode(frame_of("k", dispatch={"real_tokens": Number()}))).windows[0].dispatch.real_tokens == 7


def test_a_frame_with_something_that_is_not_json_is_dropped_and_counted(tmp_path: Path) -> None:
    outlet = Outlet(str(tmp_path / "nobody.sock"))
    assert not outlet.send(frame_of("k", dispatch={"real_tokens": object()}))
    assert (outlet.dropped, outlet.waiting) == (1, 0)


def test_steps_that_no_window_can_hold_are_named_and_the_others_are_counted(tmp_path: Path) -> None:
    with Listener(tmp_path / "agent.sock") as listener:
        pump = Pump(listener)
        done = run(
            """
            import replaywatch.probe as probe; probe.start()
            import gc, time, weakref
            class Number(int): pass
            class Tensor: pass
            class Label: pass
            tensor, label = Tensor(), Label()
            gone = [weakref.ref(tensor), weakref.ref(label)]
            for _ in range(20):
                probe.record_step("eager", batch=Number(4), real_tokens=Number(5))
                probe.record_step("eager", batch=tensor)
                probe.record_step("eager", component=label)
                probe.record_step("eager", phase="warm")
                probe.record_step("eager", no_such="thing")
                time.sleep(0.02)
            del tensor, label
            gc.collect()
            assert [ref() for ref in gone] == [None, None]
            """,
            listener,
            None,
        )
        window = merged([decode(frame) for frame in pump.stop()])
    assert window.dispatch.steps == {"eager": 20}
    assert window.dispatch.real_tokens == 100
    assert [b.signal for b in window.blind if "record_step" in b.signal] == ["steps of record_step"]
    assert done.stderr.splitlines() == ["replaywatch: record_step: a step was not counted (batch cannot be a Tensor; "
                                        "give an integer)"]  # fmt: skip


def test_names_of_fields_are_those_of_the_contract() -> None:
    assert {"replays", "captures", "live_graphs", "unused_graphs", "graph_nodes"} <= {f.name for f in fields(Dispatch)}
    assert {"pool_bytes", "unused_bytes", "by_owner"} <= {f.name for f in fields(GraphMemory)}
    assert {"hook_ns", "throttled", "errors"} <= {f.name for f in fields(ProbeCost)}
    assert set(workload.describe(_settings())) <= {f.name for f in fields(Workload)}


def _settings() -> object:
    from replaywatch.probe.settings import settle

    return settle({}, {})


def test_only_variables_that_switch_graphs_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    environment = snapshots.config({}, {})["environment"]
    assert environment["CUDA_LAUNCH_BLOCKING"] == "1"
    assert "secret" not in json.dumps(environment)
