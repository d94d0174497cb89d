from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replaywatch.contract.window import TracedWork, Window
from replaywatch.sources.reader import read
from sources.chrome_trace import ChromeTrace, write_json


def only(path: Path) -> Window:
    recording = read(path)
    assert len(recording.windows) == 1
    return recording.windows[0]


def traced(path: Path) -> TracedWork:
    work = only(path).traced
    assert work is not None
    return work


@pytest.fixture
def trace() -> ChromeTrace:
    return ChromeTrace().steps(5)


def test_gzip_and_plain_say_the_same(tmp_path: Path, trace: ChromeTrace) -> None:
    plain, packed = trace.write(tmp_path / "t.json"), trace.write(tmp_path / "t.json.gz")
    assert traced(plain) == traced(packed)
    assert traced(plain).total_kernels == 100


def test_gzip_of_several_members_is_read_to_its_end(tmp_path: Path, trace: ChromeTrace) -> None:
    data = json.dumps(trace.document()).encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(data[:5000]) + gzip.compress(data[5000:]))
    assert traced(path).total_kernels == 100


def test_bare_list_and_object_say_the_same(tmp_path: Path, trace: ChromeTrace) -> None:
    bare = write_json(tmp_path / "bare.json", trace.events)
    assert traced(bare) == traced(trace.write(tmp_path / "t.json"))


@pytest.mark.parametrize("after", [False, True])
def test_metadata_is_read_on_both_sides_of_the_events(tmp_path: Path, trace: ChromeTrace, after: bool) -> None:
    metadata = {
        "deviceProperties": [{"id": 1, "name": "other"}, {"id": 0, "name": "NVIDIA H200"}],
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13010,
        "cupti_version": 28,
        "distributedInfo": json.dumps({"rank": 3, "world_size": 8}),
        "baseTimeNanoseconds": 1_767_189_312_000_000_000,
    }
    events = {"traceEvents": trace.events}
    path = write_json(tmp_path / "t.json", {**events, **metadata} if after else {**metadata, **events})
    recording = read(path)
    window = recording.windows[0]
    fingerprint = recording.fingerprints[window.fingerprint_id or ""]
    assert (fingerprint.gpu_model, fingerprint.cuda, fingerprint.cupti) == ("NVIDIA H200", "13.0", "28")
    assert fingerprint.driver == "CUDA 13.1"
    assert window.workload.rank == 3
    assert window.start_ns > 1_767_189_312_000_000_000


def scaled(events: list[dict[str, Any]], factor: int, offset: int, as_text: bool = False) -> list[dict[str, Any]]:
    out = []
    for event in events:
        times = {"ts": round(event["ts"] * factor) + offset * factor, "dur": round(event["dur"] * factor)}
        out.append({**event, **({k: str(v) for k, v in times.items()} if as_text else times)})
    return out


@pytest.mark.parametrize("offset_us", [0, 1_700_000_000_000_000], ids=["relative", "unix"])
def test_nanosecond_stamps_are_recognised(tmp_path: Path, offset_us: int) -> None:
    trace = ChromeTrace().steps(5)
    expected = traced(trace.write(tmp_path / "us.json"))
    path = write_json(tmp_path / "ns.json", scaled(trace.events, 1000, offset_us))
    assert traced(path) == expected


def test_stamps_as_texts_are_numbers(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(5)
    path = write_json(tmp_path / "t.json", scaled(trace.events, 1, 0, as_text=True))
    assert traced(path) == traced(write_json(tmp_path / "n.json", scaled(trace.events, 1, 0)))


def test_long_kernels_in_whole_microseconds_stay_microseconds(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(5, dur=900.0)
    work = traced(write_json(tmp_path / "t.json", scaled(trace.events, 1, 0)))
    assert work.kernel_ns == 900_000 * work.kernels


def test_old_category_names_are_known(tmp_path: Path, trace: ChromeTrace) -> None:
    old = {"kernel": "Kernel", "cuda_runtime": "Runtime", "cpu_op": "Operator", "user_annotation": "cpu_op"}
    events = [{**event, "cat": old[event["cat"]]} for event in trace.events]
    work = traced(write_json(tmp_path / "t.json", events))
    assert (work.steps, work.skipped_steps, work.total_kernels) == (4, 1, 100)


def test_begin_and_end_events_make_annotations(tmp_path: Path, trace: ChromeTrace) -> None:
    events = []
    for event in trace.events:
        if event["cat"] == "user_annotation":
            begin = {k: v for k, v in event.items() if k not in ("dur", "cat")} | {"ph": "B"}
            events += [begin, {"ph": "E", "pid": 42, "tid": 1, "ts": event["ts"] + event["dur"]}]
        else:
            events.append(event)
    assert traced(write_json(tmp_path / "t.json", events)) == traced(trace.write(tmp_path / "x.json"))


@pytest.mark.parametrize(
    "api",
    ["cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC", "__cudaLaunchKernel", "cudaLaunchCooperativeKernel"],
)
def test_every_way_to_launch_counts(tmp_path: Path, api: str) -> None:
    trace = ChromeTrace()
    for _ in range(8):
        trace.kernel("a", api=api)
        trace.kernel("b", api=api)
        trace.kernel("c", api=api)
    work = traced(trace.write(tmp_path / "t.json"))
    assert work.launches == work.eager_kernels > 0
    assert work.unmatched_kernels == 0


@pytest.mark.parametrize("api", ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"])
def test_kernels_with_the_id_of_a_graph_launch_are_members(tmp_path: Path, api: str) -> None:
    trace = ChromeTrace()
    trace.kernel("alone")
    trace.replay(2, api=api)
    trace.replay(5, api=api)
    work = traced(trace.write(tmp_path / "t.json"))
    assert (work.total_graph_kernels, work.total_kernels) == (7, 8)
    assert only(tmp_path / "t.json").dispatch.replays == 2


def test_hip_names_mean_that_gaps_are_no_evidence(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for _ in range(3):
        trace.kernel("a", api="hipLaunchKernel")
        trace.kernel("b", api="hipExtModuleLaunchKernel")
        trace.kernel("c", api="hipModuleLaunchKernel")
    window = only(trace.write(tmp_path / "t.json"))
    assert window.traced is not None
    assert (window.traced.method, window.traced.gaps_are_evidence) == ("roctracer", False)
    assert any(spot.signal == "gaps" for spot in window.blind)
    assert window.traced.unmatched_kernels == 0


def without_calls(trace: ChromeTrace) -> list[dict[str, Any]]:
    return [event for event in trace.events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]


def test_without_calls_many_kernels_of_one_id_are_a_replay(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(6, graph=True, name=None)
    window = only(write_json(tmp_path / "t.json", without_calls(trace)))
    assert window.traced is not None
    assert (window.traced.total_graph_kernels, window.traced.total_kernels) == (120, 126)
    assert (window.traced.host_fixed_ns, window.traced.sync_ns) == (None, None)
    assert window.dispatch.steps == {"full": 6}
    assert [spot.signal for spot in window.blind] == ["launches"]


def test_replays_whose_call_is_never_recorded_are_found_between_recorded_launches(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(6, graph=True)
    events = [event for event in trace.events if event["name"] != "cudaGraphLaunch"]
    assert traced(write_json(tmp_path / "t.json", events)).total_graph_kernels == 120


def test_groups_launched_before_the_recording_are_not_taken_for_replays(tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.replay(5)
    first = [event for event in trace.events if event["cat"] == "kernel"]
    rest = ChromeTrace(start_us=5000.0)
    rest.correlation = 500
    rest.steps(5)
    assert traced(write_json(tmp_path / "t.json", first + rest.events)).total_graph_kernels == 0


def test_graph_ids_in_arguments_mark_members(tmp_path: Path, trace: ChromeTrace) -> None:
    for event in trace.events:
        if event["cat"] == "kernel":
            event["args"] |= (
                {"graph node id": 7, "graph id": 3} if event["name"] == "kernel_1" else {"graph node id": 0}
            )
    marked = sum(e["name"] == "kernel_1" for e in trace.events if e["cat"] == "kernel")
    assert traced(trace.write(tmp_path / "t.json")).total_graph_kernels == marked > 0


def test_each_device_is_a_workload(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for number in range(12):
        for device in (0, 3):
            trace.kernel("abc"[number % 3], device=device)
    windows = read(trace.write(tmp_path / "t.json")).windows
    assert [w.workload.gpu_index for w in windows] == [0, 3]
    assert [w.traced and w.traced.total_kernels for w in windows] == [12, 12]
    assert len({w.workload.key for w in windows}) == 2


def test_processes_in_one_file_keep_their_devices(tmp_path: Path) -> None:
    first, second = ChromeTrace(), ChromeTrace()
    first.steps(5)
    second.correlation = 100_000
    second.steps(5, kernels=10)
    for event in second.events:
        if event["pid"] == 42:
            event["pid"] = 43
        else:
            event["pid"], event["args"]["device"] = 1, 1
    windows = read(write_json(tmp_path / "t.json", first.events + second.events)).windows
    assert [(w.workload.pid, w.workload.gpu_index) for w in windows] == [(42, 0), (43, 1)]
    assert [w.traced and w.traced.launches for w in windows] == [80, 40]


def damage(trace: ChromeTrace, values: list[Any]) -> int:
    kernels = [event for event in trace.events if event["cat"] == "kernel"]
    for event, value in zip(kernels, values, strict=False):
        if value == "missing":
            del event["dur"]
        else:
            event["dur"] = value
    return len(values)


def test_impossible_durations_are_dropped_and_counted(tmp_path: Path, trace: ChromeTrace) -> None:
    count = damage(trace, [-5, "missing", None, float("nan"), 1e15, float("inf"), "long"])
    work = traced(trace.write(tmp_path / "t.json"))
    assert work.dropped_records == count
    assert work.total_kernels == 100 - count


def test_a_record_that_swallows_its_stream_is_dropped(tmp_path: Path) -> None:
    trace = ChromeTrace().steps(20)
    kernels = [event for event in trace.events if event["cat"] == "kernel"]
    kernels[100]["dur"] = 6000.0
    damaged = traced(trace.write(tmp_path / "t.json"))
    assert damaged.dropped_records == 1
    kernels[100]["dur"] = 3.0
    assert damaged.busy_ratio == pytest.approx(traced(trace.write(tmp_path / "t.json")).busy_ratio, rel=0.01)


def test_what_writers_get_wrong_is_mended(tmp_path: Path, trace: ChromeTrace) -> None:
    text = json.dumps(trace.document())
    expected = traced(trace.write(tmp_path / "x.json"))
    text = text.replace('"stream": 7', '"occupancy": -nan, "bandwidth": inf, "path": "C:\\dir", "stream": 7')
    data = text.encode().replace(b"kernel_1", b"kernel\xff_1").replace(b"kernel_2", b"ker\x01nel_2")
    path = tmp_path / "t.json"
    path.write_bytes(data)
    assert replace(traced(path), dropped_records=0) == expected


def test_odd_entries_cost_only_themselves(tmp_path: Path, trace: ChromeTrace) -> None:
    events: list[Any] = list(trace.events)
    events[3:3] = [{"ph": "X", "cat": "kernel", "ts": [1], "dur": {}}, {"ph": "M", "args": [1, 2]}, {"name": None}]
    work = traced(write_json(tmp_path / "t.json", events))
    assert work.total_kernels == 100
    assert work.dropped_records == 2


def test_a_trace_without_gpu_events_is_blind_and_says_what_to_do(tmp_path: Path, trace: ChromeTrace) -> None:
    events = [event for event in trace.events if event["cat"] not in ("kernel", "gpu_memcpy", "gpu_memset")]
    window = only(write_json(tmp_path / "t.json", events))
    assert window.traced is None
    assert window.blind[0].signal == "kernels"
    assert "ProfilerActivity.CUDA" in window.blind[0].reason


@pytest.mark.parametrize("document", [{"traceEvents": []}, [], {"a": {"traceEvents": 1}, "traceEvents": []}])
def test_an_empty_trace_is_blind(tmp_path: Path, document: Any) -> None:
    assert only(write_json(tmp_path / "t.json", document)).traced is None


def test_the_engine_is_known_by_its_annotations_and_its_files(tmp_path: Path) -> None:
    named = ChromeTrace().steps(5, name="execute_context_0(0)_generation_8(8)")
    assert only(named.write(tmp_path / "a.json")).workload.engine == "vllm"
    stacked = ChromeTrace().steps(5)
    stacked.add("python_function", "sglang/srt/managers/scheduler.py(10): run", 1000.0, 5.0)
    assert only(stacked.write(tmp_path / "b.json")).workload.engine == "sglang"
    assert only(ChromeTrace().steps(5).write(tmp_path / "c.json")).workload.engine == "torch"


def test_progress_reaches_the_size_of_the_file(tmp_path: Path, trace: ChromeTrace) -> None:
    path = trace.write(tmp_path / "t.json.gz")
    told: list[tuple[int, int]] = []
    read(path, lambda done, total: told.append((done, total)))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
