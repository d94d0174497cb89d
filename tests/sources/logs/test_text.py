"""What a log's packaging must not change, and what damaged material must give."""

from __future__ import annotations

import gzip
import json
import os
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaywatch.contract.errors import SourceError, UnknownSource, UnreadableSource
from replaywatch.contract.window import OBSERVATION_KINDS, Window, merge_windows
from replaywatch.sources.logs import LogReader, read_log
from replaywatch.sources.logs.literals import read_arguments, read_value
from replaywatch.sources.logs.privacy import MAX_DETAIL_CHARS, safe
from replaywatch.sources.recording import Recording
from sources.logs.support import LINES, WRITTEN_NS, kinds, ours, read_text, whole

NAMES = sorted(p.name for p in LINES.glob("*.log"))


@pytest.mark.parametrize("name", NAMES)
def test_every_observation_and_reason_is_of_the_contract(name: str) -> None:
    from replaywatch.contract.window import CAPTURE_OUTCOMES, FALLBACK_REASONS

    for window in read_text(ours(name)).windows:
        assert {o.kind for o in window.observations} <= set(OBSERVATION_KINDS)
        assert set(window.dispatch.fallbacks or ()) <= set(FALLBACK_REASONS)
        assert set(window.dispatch.captures or ()) <= set(CAPTURE_OUTCOMES)
        assert set(window.dispatch.steps or ()) <= {"full", "piecewise", "eager"}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.floats(0, 1), max_size=12))
def test_where_the_text_is_cut_does_not_matter(name: str, cuts: list[float]) -> None:
    text = ours(name)
    edges = sorted({0, len(text), *(int(c * len(text)) for c in cuts)})
    assert read_text([text[a:b] for a, b in pairwise(edges)]) == read_text(text)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NAMES))
def test_one_character_at_a_time_gives_the_same(name: str) -> None:
    assert read_text(list(ours(name))) == read_text(ours(name))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_colours_and_carriage_returns_change_nothing(name: str, data: st.DataObject) -> None:
    text = ours(name)
    for at in sorted(data.draw(st.sets(st.integers(0, len(text)), min_size=1, max_size=8)), reverse=True):
        text = text[:at] + data.draw(st.sampled_from(["\x1b[0;36m", "\x1b[0m", "\x1b[K", "\x1b[1;33m"])) + text[at:]
    ending = data.draw(st.sampled_from(["\n", "\r\n", "\r", "\n\r", "\n\n"]))
    if name == "torch-compile.log":
        ending = "\r\n"
    assert read_text(text.replace("\n", ending)) == read_text(ours(name))


def strip_times(recording: Recording) -> dict[str, Window]:
    """One window a workload, without what packaging may add: times, container names, pids."""
    windows: dict[str, Window] = {}
    for w in recording.windows:
        who = replace(w.workload, pod=None, container=None, namespace=None, pid=None)
        bare = replace(w, workload=who, start_ns=0, end_ns=1)
        windows[who.key] = merge_windows(windows[who.key], bare) if who.key in windows else bare
    return windows


def wrap_docker(line: str) -> str:
    return f"2026-11-29T17:00:00.123456789Z {line}"


def wrap_docker_json(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T17:00:00.123456789Z"})


def wrap_cri(line: str) -> str:
    return f"2026-11-29T17:00:00.123456789+01:00 stderr F {line}"


def wrap_kubectl(line: str) -> str:
    return f"[pod/llm-0/server] {line}"


def wrap_compose(line: str) -> str:
    return f"server-1  | {line}"


def wrap_journald(line: str) -> str:
    return f"Nov 29 17:00:00 node7 vllm[812]: {line}"


def wrap_json(line: str) -> str:
    return json.dumps({"time": "2026-11-29 17:00:00,123", "level": "INFO", "logger": "root", "message": line})


WRAPPERS = [wrap_docker, wrap_docker_json, wrap_cri, wrap_kubectl, wrap_compose, wrap_journald, wrap_json]


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_what_carried_the_log_does_not_matter(name: str, wrapper) -> None:  # type: ignore[no-untyped-def]
    from replaywatch.sources.logs.lines import LineSplitter

    bare = LineSplitter().feed(ours(name))
    plain = read_text("\n".join(bare) + "\n")
    wrapped = read_text("\n".join(wrapper(line) for line in bare) + "\n")
    assert strip_times(wrapped) == strip_times(plain)


def test_line_cut_by_the_container_runtime_is_joined() -> None:
    lines = ours("vllm-metrics.log").splitlines()
    long = lines[1]
    parts = [f"2026-11-20T09:00:09Z stderr P {long[:700]}", f"2026-11-20T09:00:09Z stderr F {long[700:]}"]
    text = "\n".join(parts + [f"2026-11-20T09:00:10Z stderr F {line}" for line in lines[2:]]) + "\n"
    recording = read_text(text)
    assert recording.configs[whole(recording).config_id or ""].ceiling == 32


def test_pods_in_one_file_are_workloads_of_their_own() -> None:
    a = [f"[pod/llm-0/server] {line}" for line in ours("vllm-metrics.log").splitlines()]
    b = [f"[pod/llm-1/server] {line}" for line in ours("sglang-old.log").splitlines()]
    mixed = [line for pair in zip(a, b, strict=False) for line in pair] + a[len(b) :]
    pods = {(w.workload.pod, w.workload.engine) for w in read_text("\n".join(mixed)).windows}
    assert pods == {("llm-0", "vllm"), ("llm-1", "sglang")}


def test_message_behind_an_unfinished_bar_is_read() -> None:
    bar = "Capturing CUDA graph shapes:  69%|█�"
    text = ours("vllm-0.9.log").replace(
        "INFO 05-01 12:00:33 [gpu", f"{bar}(VllmWorker rank=0 pid=7) INFO 05-01 12:00:33 [gpu"
    )
    assert whole(read_text(text)).memory.pool_bytes == round(0.12 * (1 << 30))


def test_year_comes_from_when_the_file_was_written() -> None:
    december = "INFO 12-31 23:59:59 [gpu_model_runner.py:1] Graph capturing finished in 3 secs, took 0.1 GiB\n"
    window = whole(read_text(december))
    assert 0 < (WRITTEN_NS - window.start_ns) / 86_400e9 < 366
    leap = december.replace("12-31", "02-29")
    assert whole(read_text(leap)).start_ns < WRITTEN_NS


def test_log_of_hours_gives_windows_in_order_of_time() -> None:
    line = "[2026-11-29 {h:02}:{m:02}:00] Decode batch. #running-req: 3, cuda graph: {g}, gen throughput (token/s): 9\n"
    text = "".join(line.format(h=h, m=m, g=h < 5) for h in range(10) for m in range(60))
    windows = read_text(text).windows
    assert 100 <= len(windows) <= 600
    assert [w.start_ns for w in windows] == sorted(w.start_ns for w in windows)
    assert sum(w.steps or 0 for w in windows) == 600
    assert windows[0].dispatch.steps is not None
    assert "eager" not in windows[0].dispatch.steps
    assert windows[-1].dispatch.steps == {"eager": windows[-1].steps}


def test_following_a_log_hands_out_each_step_once() -> None:
    reader = LogReader("live.log", window_ns=1_000_000_000)
    steps: dict[str, int] = {}
    for second, line in enumerate(ours("sglang-old.log").splitlines(True)):
        reader.feed(line, WRITTEN_NS + second * 1_000_000_000)
        for window in reader.take().windows:
            for mode, count in (window.dispatch.steps or {}).items():
                steps[mode] = steps.get(mode, 0) + count
    reader.finish(WRITTEN_NS + 10**12)
    for window in reader.take().windows:
        for mode, count in (window.dispatch.steps or {}).items():
            steps[mode] = steps.get(mode, 0) + count
    assert steps == {"full": 1, "eager": 3}


def test_secrets_prompts_and_homes_stay_out() -> None:
    text = ours("vllm-0.9.log") + (
        "ERROR 05-01 12:01:00 [serving.py:1] Traceback (most recent call last):\n"
        "ERROR 05-01 12:01:00 [serving.py:1] ValueError: prompt 'my CUDA graph diary' is too long\n"
        "ERROR 05-01 12:01:00 [x.py:1] RuntimeError: cannot read graph at "
        "https://bob:hunter2@acme/x?token=hf_abcdefgh12345 with Bearer abc.def.ghi for api_key=sk-aaaaaaaaaaaaaaaa\n"
    )
    recording = read_text(text)
    said = repr(recording)
    for secret in ("diary", "hunter2", "abcdefgh12345", "abc.def.ghi", "aaaaaaaa", "sk-verysecret123"):
        assert secret not in said, secret
    assert "error" in kinds(recording)
    assert "somebody" not in repr(read_text(ours("torch-compile.log")))


def test_what_users_send_is_never_taken_for_the_engines_word() -> None:
    quoted = "EngineDeadError CUDA out of memory, Cudagraph is disabled under eager mode, cuda graph: False"
    text = ours("vllm-metrics.log") + (
        f"(APIServer pid=10) INFO 11-20 09:00:41 [logger.py:40] Received request cmpl-1: prompt: '{quoted}', x\n"
    )
    assert read_text(text) == read_text(ours("vllm-metrics.log"))
    asked = f"[2026-11-29 10:01:02] Receive: obj=GenerateReqInput(rid='1', text='{quoted}')\n"
    assert read_text(ours("sglang-old.log") + asked) == read_text(ours("sglang-old.log"))


@given(st.text(max_size=2000))
def test_details_are_one_short_line(text: str) -> None:
    said = safe(text)
    assert len(said) <= MAX_DETAIL_CHARS
    assert "\n" not in said


@settings(deadline=None)
@given(st.text(alphabet="a1,=:'\"()[]{}<> \\.N", max_size=300))
def test_any_dump_of_arguments_is_read(text: str) -> None:
    assert isinstance(read_arguments(text), dict)
    read_value(text)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.text("abc xyz,()[]'\"\\", max_size=12)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text("abcde", min_size=1, max_size=4), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_python_and_json_literals_come_back(value: object) -> None:
    assert read_value(repr(value)) == value
    assert read_value(json.dumps(value)) == value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=400), st.tuples(st.sampled_from(NAMES), st.binary(max_size=60), st.floats(0, 1))
    )
)
def test_any_bytes_give_a_recording_or_a_named_error(tmp_path: Path, content) -> None:  # type: ignore[no-untyped-def]
    if isinstance(content, tuple):
        name, noise, where = content
        text = ours(name).encode()
        at = int(where * len(text))
        content = text[:at] + noise + text[at + len(noise) :]
    path = tmp_path / "any.log"
    path.write_bytes(content)
    try:
        recording = read_log(path)
    except SourceError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
    else:
        assert recording.windows
        assert all(w.end_ns > w.start_ns for w in recording.windows)


NUMBER = re.compile(r"\d+(?:\.\d+)?")
ODD_NUMBERS = ["", ".", "1.2.3", "..", "-", "NaN", "²", "٣", "9" * 19, "9" * 400, "9" * 5000, "1:" * 40 + "1"]
VLLM_LINE = "(EngineCore pid=42) INFO 11-20 09:00:16 [a.py:1] "


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_odd_numbers_in_an_engines_log_are_read(name: str, data: st.DataObject) -> None:
    text = ours(name)
    match = data.draw(st.sampled_from(list(NUMBER.finditer(text))))
    odd = text[: match.start()] + data.draw(st.sampled_from(ODD_NUMBERS)) + text[match.end() :]
    assert all(w.end_ns > w.start_ns for w in read_text(odd).windows)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("vllm-metrics.log", VLLM_LINE + "Estimated CUDA graph memory: {} GiB total"),
        ("vllm-metrics.log", VLLM_LINE + "CUDA graph pool memory: {} GiB (actual), 0.1 GiB (estimated)"),
        ("vllm-metrics.log", VLLM_LINE + "Graph capturing finished in {} secs, took 0.42 GiB"),
        ("vllm-metrics.log", VLLM_LINE + "Capturing CUDA graphs: 100%|####| 3/3 [{}<00:00, 1.2it/s]"),
        ("sglang-old.log", "[2026-11-29 10:00:37 TP0] Capture cuda graph end. Time elapsed: {} s. mem usage=0.93 GB."),
        ("sglang-old.log", "[2026-11-29 10:00:37 TP0] Capture cuda graph end. Time elapsed: 1.2 s. mem usage={} GB."),
        ("trtllm.log", "[TRT-LLM] [I] iter = 1, host_step_time = {}ms, num_scheduled_requests: 4"),
    ],
)
def test_an_odd_number_in_a_sentence_is_no_error(name: str, sentence: str) -> None:
    for odd in ODD_NUMBERS:
        windows = read_text(ours(name) + sentence.format(odd) + "\n").windows
        assert all(w.end_ns > w.start_ns for w in windows)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.floats(0.05, 1))
def test_log_cut_anywhere_is_read(name: str, where: float) -> None:
    text = ours(name)
    reader = LogReader(name)
    reader.feed(text[: int(where * len(text))], WRITTEN_NS)
    reader.finish(WRITTEN_NS)
    assert all(w.end_ns > w.start_ns for w in reader.take().windows)


def test_gzip_is_read_and_a_truncated_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(ours("vllm-metrics.log").encode()))
    assert whole(read_log(path)).dispatch.steps
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UnreadableSource, match="truncated gzip"):
        read_log(path)


def test_foreign_material_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "nginx.log"
    path.write_text('127.0.0.1 - - [29/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 612\n' * 50)
    with pytest.raises(UnknownSource, match="no line comes from vLLM"):
        read_log(path)
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(100))
    with pytest.raises(UnreadableSource, match="binary"):
        read_log(path)
    with pytest.raises(UnreadableSource, match="directory"):
        read_log(tmp_path)
    with pytest.raises(UnreadableSource, match="cannot be read"):
        read_log(tmp_path / "missing.log")


def test_file_still_being_written_is_not_called_dead(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(ours("vllm-metrics.log").splitlines(True)[:4]))
    os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))
    late = read_log(path, now_ns=WRITTEN_NS + 10 * 86_400 * 10**9)
    assert "process_died" in kinds(late)
    text = path.read_text().replace("11-20 09", "11-29 17")
    path.write_text(text)
    os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))
    assert "process_died" not in kinds(read_log(path, now_ns=WRITTEN_NS + 60 * 10**9))


def test_progress_reaches_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(ours("vllm-metrics.log"))
    calls: list[tuple[int, int]] = []
    read_log(path, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (path.stat().st_size, path.stat().st_size)


@pytest.mark.parametrize(
    "unit",
    [
        "Capture ",
        "Capture draft extend cuda graph ",
        "with config: Running batch with cudagraph_mode: FULL, batch_descriptor: ",
        "server_args=Capture cuda graph bs=[",
        "CUDAGraphMode.FULL is not supported with ",
        "cuda_graph_config=CudaGraphConfig(",
        "skipping cudagraphs due to Found from ",
        "Overriding to cuda graph ",
        "100%|1/1 [00:00<",
        "{'a': [(",
        "max_total_num_tokens=1",
        "Avg prompt throughput: ",
    ],
)
def test_hostile_text_costs_little_time(unit: str) -> None:
    hostile = unit * (60_000 // len(unit))
    text = ours("vllm-metrics.log") + f"(EngineCore pid=42) INFO 11-20 09:00:41 [x.py:1] {hostile}\n"
    started = time.process_time()
    read_text(text)
    read_text(ours("sglang-old.log") + f"[2026-11-29 10:01:10 TP0] {hostile}\n")
    read_text(ours("trtllm.log") + f"[09/21/2025-13:20:05] [TRT-LLM] [I] {hostile}\n")
    assert time.process_time() - started < 3.0
