"""Bad input: one sentence that says what is wrong and what to do, never anything else."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaywatch.contract.errors import SourceError, UnknownSource, UnreadableSource
from replaywatch.contract.wire import Batch, decode, encode
from replaywatch.sources.eventstream import EventStream
from replaywatch.sources.reader import read, recognise
from sources.chrome_trace import ChromeTrace, write_json

ROOT = Path(__file__).parents[2]
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refusal(path: Path, kind: type[SourceError] = SourceError) -> str:
    with pytest.raises(kind) as caught:
        read(path)
    text = str(caught.value)
    assert str(path) in text
    assert ";" in text
    assert "\n" not in text
    return text


def put(tmp_path: Path, data: bytes, name: str = "trace.json") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


TRACE = json.dumps(ChromeTrace().steps(5).document(deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])).encode()


def test_a_missing_file(tmp_path: Path) -> None:
    assert "cannot be opened" in refusal(tmp_path / "nothing.json", UnreadableSource)


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path, UnreadableSource)


def test_a_name_that_no_file_can_have() -> None:
    assert "cannot be opened" in refusal(Path("a\0b"), UnreadableSource)


@pytest.mark.parametrize("data", [b"", b" \n\t ", gzip.compress(b"")], ids=["empty", "blank", "empty gzip"])
def test_an_empty_file(tmp_path: Path, data: bytes) -> None:
    assert "is empty" in refusal(put(tmp_path, data), UnreadableSource)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_truncated_gzip(tmp_path: Path, share: float) -> None:
    data = gzip.compress(TRACE)
    assert "truncated gzip" in refusal(put(tmp_path, data[: int(len(data) * share)]), UnreadableSource)


def test_a_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(TRACE))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\xff" * 40
    assert "gzip" in refusal(put(tmp_path, bytes(data)), UnreadableSource)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.999])
def test_a_trace_that_is_still_being_written(tmp_path: Path, share: float) -> None:
    assert "breaks off" in refusal(put(tmp_path, TRACE[: int(len(TRACE) * share)]), UnreadableSource)


def test_a_bare_list_that_is_still_being_written(tmp_path: Path) -> None:
    data = json.dumps(ChromeTrace().steps(3).events).encode()
    assert "breaks off" in refusal(put(tmp_path, data[:-1]), UnreadableSource)


def test_json_without_trace_events(tmp_path: Path) -> None:
    assert "without traceEvents" in refusal(put(tmp_path, b'{"model": "llama", "layers": [1, 2]}'), UnreadableSource)


@pytest.mark.parametrize("data", [b"[1, 2, 3]", b'["a", "b"]', b"[[1]]", b"[3]"])
def test_a_json_list_of_something_else(tmp_path: Path, data: bytes) -> None:
    assert "not of trace events" in refusal(put(tmp_path, data), UnknownSource)


def test_a_json_list_of_other_objects(tmp_path: Path) -> None:
    assert "none of its entries" in refusal(put(tmp_path, b'[{"a": 1}, {"a": 2}]'), UnknownSource)


def test_trace_events_that_are_no_list_of_objects(tmp_path: Path) -> None:
    refusal(put(tmp_path, b'{"traceEvents": [1, 2, 3]}'), UnreadableSource)
    refusal(put(tmp_path, b'{"traceEvents": 3}'), UnreadableSource)


def test_a_binary(tmp_path: Path) -> None:
    assert "binary file" in refusal(put(tmp_path, bytes(range(256)) * 40), UnknownSource)
    assert "binary file" in refusal(Path(os.path.realpath(sys.executable)), UnknownSource)


@pytest.mark.parametrize(("magic", "tool"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "unzip")])
def test_another_compression_names_its_tool(tmp_path: Path, magic: bytes, tool: str) -> None:
    assert tool in refusal(put(tmp_path, magic + os.urandom(100)), UnknownSource)


def test_a_database_that_nsight_did_not_write(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE users (id INTEGER)")
        database.commit()
    assert "no Nsight Systems export" in refusal(path, UnknownSource)


def test_a_damaged_database(tmp_path: Path) -> None:
    assert "SQLite" in refusal(put(tmp_path, b"SQLite format 3\0" + b"\x07" * 5000, "x.sqlite"), UnreadableSource)


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    assert recognise(put(tmp_path, TRACE, "a.log")) == "trace"
    assert recognise(put(tmp_path, gzip.compress(TRACE), "b.txt")) == "trace"
    assert recognise(put(tmp_path, json.dumps(json.loads(TRACE), indent=1).encode(), "c")) == "trace"
    assert recognise(put(tmp_path, b"[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 4\n", "d.json")) == "log"
    assert recognise(put(tmp_path, b"[09/21/2025-13:19:03] [TRT-LLM] [I] Run\n", "e.json")) == "log"
    assert recognise(put(tmp_path, b'{"msg": "a"}\n{"msg": "b"}\n', "f.json")) == "log"
    metrics = b'# HELP vllm:x y\n# TYPE vllm:x gauge\nvllm:x{model="a"} 1.0\n'
    assert recognise(put(tmp_path, metrics, "g.json")) == "metrics"


def test_without_msgspec_the_sentence_names_the_extra(tmp_path: Path) -> None:
    path = put(tmp_path, TRACE)
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from replaywatch.sources.reader import read\n"
        "from replaywatch.contract.errors import SourceError\n"
        "try:\n    read(sys.argv[1])\nexcept SourceError as error:\n    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "agent")},
    )
    assert "pip install 'replaywatch[analyze]'" in run.stdout


def attempt(path: Path) -> None:
    with contextlib.suppress(SourceError):
        assert read(path).windows


@RELAXED
@given(st.binary(max_size=300))
def test_any_bytes_give_a_recording_or_the_named_error(tmp_path: Path, data: bytes) -> None:
    attempt(put(tmp_path, data))


@RELAXED
@given(st.data())
def test_any_mutation_of_a_trace_gives_a_recording_or_the_named_error(tmp_path: Path, data: st.DataObject) -> None:
    mutated = bytearray(TRACE)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        length = data.draw(st.integers(0, 40))
        mutated[at : at + length] = data.draw(
            st.binary(max_size=20) | st.sampled_from([b'"', b"}", b"{", b"]", b"-1e9"])
        )
    attempt(put(tmp_path, bytes(mutated)))


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just([]) | st.just({})
categories = st.sampled_from(
    ["kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cpu_op", "user_annotation", "python_function", "ac2g"]
)
calls = [
    "cudaLaunchKernel",
    "cudaGraphLaunch",
    "cudaStreamSynchronize",
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
]
marks = ["ProfilerStep#1", "ProfilerStep#2", "execute_context_0(0)_generation_8(8)"]
names = st.sampled_from([*calls, *marks, "k1", "k2", "copy", "Memcpy DtoH"])
times = st.integers(0, 2000) | st.floats(0, 2000)
sane = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXBE"), "cat": categories, "name": names, "ts": times, "dur": times},
    optional={
        "pid": st.integers(0, 2),
        "tid": st.integers(0, 2),
        "args": st.fixed_dictionaries({}, optional={"correlation": st.integers(0, 9), "stream": st.integers(0, 2)}),
    },
)
wild = st.dictionaries(st.sampled_from(["ph", "cat", "name", "ts", "dur", "pid", "tid", "args"]), values)


@RELAXED
@given(st.lists(sane | wild, max_size=60))
def test_any_list_of_events_gives_sums_that_hold_and_travel(tmp_path: Path, events: list[Any]) -> None:
    try:
        windows = read(write_json(tmp_path / "t.json", {"traceEvents": events})).windows
    except SourceError:
        return
    assert decode(encode(Batch(key="k", sent_ns=0, windows=windows))).windows == windows
    for window in windows:
        work = window.traced
        if work is not None:
            assert 0 <= work.total_busy_ns <= work.total_span_ns
            assert 0 <= work.busy_ns <= work.span_ns
            assert work.total_graph_kernels <= work.total_kernels
            assert work.kernels <= work.total_kernels
            assert work.steps >= 0


@RELAXED
@given(
    st.lists(st.text(st.sampled_from('a},{[]":\\ \n'), max_size=30), min_size=1, max_size=40),
    st.integers(1, 400),
    st.sampled_from([None, 1]),
)
def test_cuts_never_fall_inside_an_event(tmp_path: Path, texts: list[str], chunk: int, indent: int | None) -> None:
    events = [{"ph": "X", "name": t, "args": {"list": [{"a": t}, {"b": [t]}], "correlation": 1}} for t in texts]
    document = {"before": [{"x": 1}, {"y": 2}], "traceEvents": events, "after": [{"z": "},{"}, {"traceEvents": []}]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document, indent=indent))
    stream = EventStream(path, chunk_bytes=chunk)
    assert [event.name for chunk_events in stream for event in chunk_events] == texts
    assert stream.metadata == {"before": document["before"], "after": document["after"]}
