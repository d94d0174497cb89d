from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaywatch.contract.errors import SourceError, UnknownSource, UnreadableSource
from replaywatch.contract.window import Window
from replaywatch.sources.reader import read
from sources.nsight_export import CALLS, COLUMNS, KERNELS, RANGES, NsightExport
from sources.published import published


def only(path: Path) -> Window:
    (window,) = read(path).windows
    return window


def decode_loop(level: str, steps: int = 8, kernels: int = 30) -> NsightExport:
    export = NsightExport()
    for step in range(steps):
        begin = export.now
        export.kernel("embed")
        export.replay(kernels, level)
        export.kernel("sample")
        wait = max(export.free - export.now, 0) + 1_000
        export.call("cudaStreamSynchronize_v3020", wait)
        export.now += 20_000
        export.range(f"[Executor] _forward_step {step}: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", begin)
    return export


@pytest.mark.parametrize("level", ["node", "shared correlation"])
def test_node_level_graphs_are_covered(tmp_path: Path, level: str) -> None:
    window = only(decode_loop(level).write(tmp_path / "t.sqlite"))
    work = window.traced
    assert work is not None
    assert (work.method, work.total_graph_kernels, work.total_kernels) == ("nsys", 240, 256)
    assert window.dispatch.steps == {"full": 8}
    assert window.dispatch.batch_sizes == {32: 8}
    assert (window.workload.engine, window.workload.phase, window.workload.pid) == ("trtllm", "decode", 145)
    assert window.blind == ()


def test_graph_level_records_stand_for_kernels_and_say_so(tmp_path: Path) -> None:
    window = only(decode_loop("graph").write(tmp_path / "t.sqlite"))
    work = window.traced
    assert work is not None
    assert window.dispatch.steps == {"full": 8}
    assert window.dispatch.replays == 8
    assert work.coverage == pytest.approx(30 / 32, abs=0.05)
    assert [spot.signal for spot in window.blind] == ["graph_kernels"]
    assert "--cuda-graph-trace=node" in window.blind[0].reason
    assert window.timing.replay is not None
    assert window.timing.replay.mean == 90_000


def test_missing_columns_of_other_schemas_are_tolerated(tmp_path: Path) -> None:
    lacking = ("graphNodeId", "graphId", "globalPid", "textId", "returnValue", "demangledName", "dstKind")
    export = decode_loop("shared correlation")
    assert only(export.write(tmp_path / "a.sqlite", without=lacking)).traced is not None
    for row in export.rows[CALLS]:
        row["globalTid"] = 0
    work = only(export.write(tmp_path / "b.sqlite", without=lacking)).traced
    assert work is not None
    assert work.total_graph_kernels == 240


@pytest.mark.parametrize("column", ["start", "end", "deviceId"])
def test_a_schema_without_what_is_needed_is_refused(tmp_path: Path, column: str) -> None:
    export = decode_loop("node")
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="9.1.0")
    with pytest.raises(UnknownSource) as caught:
        read(export.write(tmp_path / "t.sqlite", without=(column,)))
    text = str(caught.value)
    assert column in text
    assert "9.1.0" in text
    assert "nsys" in text


def test_an_export_without_cuda_is_blind(tmp_path: Path) -> None:
    export = NsightExport()
    export.range("idle", 0)
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.25.0")
    window = only(export.write(tmp_path / "t.sqlite"))
    assert window.traced is None
    assert "--trace=cuda" in window.blind[0].reason


def test_an_unfinished_file_is_refused(tmp_path: Path) -> None:
    path = decode_loop("node", steps=200).write(tmp_path / "t.sqlite")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UnreadableSource) as caught:
        read(path)
    assert "export it again" in str(caught.value)


def test_processes_and_devices_are_workloads_of_their_own(tmp_path: Path) -> None:
    first, second = decode_loop("node"), NsightExport(process=146, device=1)
    second.texts = first.texts
    for _ in range(9):
        for name in ("a", "b", "c", "d"):
            second.kernel(name)
    for table, rows in second.rows.items():
        first.rows.setdefault(table, []).extend(rows)
    windows = read(first.write(tmp_path / "t.sqlite")).windows
    assert [(w.workload.pid, w.workload.gpu_index) for w in windows] == [(145, 0), (146, 1)]
    assert [w.traced and w.traced.total_kernels for w in windows] == [256, 36]


def test_the_fingerprint_names_device_and_driver(tmp_path: Path) -> None:
    export = decode_loop("node")
    export.add("TARGET_INFO_GPU", id=0, cuDevice=0, name="NVIDIA H200")
    export.add("TARGET_INFO_SYSTEM_ENV", name="NvDriverVersion", value="580.95.05")
    export.add("TARGET_INFO_SYSTEM_ENV", name="CudaDriverVersion", value="13000")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_779_782_330_176_752_435)
    recording = read(export.write(tmp_path / "t.sqlite"))
    (fingerprint,) = recording.fingerprints.values()
    assert (fingerprint.gpu_model, fingerprint.driver, fingerprint.cuda) == ("NVIDIA H200", "580.95.05", "13.0")
    assert fingerprint.id == recording.windows[0].fingerprint_id
    assert recording.windows[0].start_ns > 1_779_782_330_000_000_000


def test_failing_graph_launches_are_counted(tmp_path: Path) -> None:
    export = decode_loop("node")
    export.call("cudaGraphLaunch_v10000", result=700)
    export.call("cudaEventQuery_v3020", result=600)
    assert only(export.write(tmp_path / "t.sqlite")).dispatch.failed_calls == {"error 700": 1}


def test_impossible_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    export = decode_loop("node")
    for start, end in ((5, 3), (None, 3), (0, 0), (1, 10**18), ("a", "b"), (2.5, 3.5)):
        export.add(KERNELS, start=start, end=end, deviceId=0, streamId=7, correlationId=1, globalPid=145 << 24)
    work = only(export.write(tmp_path / "t.sqlite")).traced
    assert work is not None
    assert (work.dropped_records, work.total_kernels) == (6, 256)


def test_published_two_gpu_training_is_busy_and_eager() -> None:
    windows = read(published("nsys/mfu_2gpu_before.sqlite")).windows
    works = [w.traced for w in windows if w.traced]
    assert [w.workload.gpu_index for w in windows] == [0, 1]
    assert sum(w.total_kernels for w in works) == 4010
    assert [w.total_graph_kernels for w in works] == [0, 0]
    assert works[0].busy_ratio == pytest.approx(0.913, abs=0.001)


cells = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.binary(max_size=4)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_rows_give_a_recording_or_the_named_error(tmp_path: Path, data: st.DataObject) -> None:
    export = decode_loop("node", steps=3, kernels=5)
    for table in (KERNELS, CALLS, RANGES, "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        for _ in range(data.draw(st.integers(0, 3))):
            export.add(table, **{c: data.draw(cells) for c in COLUMNS[table].split()})
    path = export.write(tmp_path / "t.sqlite", without=tuple(data.draw(st.sets(st.sampled_from(["globalTid", "end"])))))
    try:
        windows = read(path).windows
    except SourceError:
        return
    assert windows
    for window in windows:
        if window.traced is not None:
            assert window.traced.busy_ns <= window.traced.span_ns


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(16, 30_000), st.integers(0, 255)), min_size=1, max_size=40))
def test_any_damage_gives_a_recording_or_the_named_error(tmp_path: Path, damage: list[tuple[int, int]]) -> None:
    path = tmp_path / "whole.sqlite"
    if not path.exists():
        decode_loop("node", steps=5).write(path)
    data = bytearray(path.read_bytes())
    for place, value in damage:
        data[place % (len(data) - 16) + 16] = value
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(bytes(data))
    with contextlib.suppress(SourceError):
        assert read(damaged).windows
