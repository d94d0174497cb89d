"""CUPTI belongs to everybody in the process: who comes, goes or takes it must be seen, and never harmed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tracer import fake_world
from tracer.fake_world import Script, World
from tracer.workloads import eager_steps

_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64
_kept: list[Any] = []


def _marks(count: int = 6) -> list[tuple[int, str | None]]:
    return [(i * 363_000, None) for i in range(1, count)]


def _take_callbacks() -> None:
    memory = ctypes.create_string_buffer(1 << 20)

    def requested(buffer: Any, size: Any, most: Any) -> None:
        buffer[0] = ctypes.addressof(memory)
        size[0] = len(memory)
        most[0] = 0

    _kept.extend((memory, _REQUESTED(requested), _COMPLETED(lambda *_: None)))
    assert fake_world.cupti().cuptiActivityRegisterCallbacks(_kept[-2], _kept[-1]) == 0


def _taken_over() -> tuple[Any, Any]:
    script = eager_steps(6)
    script.marks.extend(_marks())
    empty = Script([], _marks(), script.length or 2_300_000)
    stolen = fake_world.play(empty, between=_take_callbacks)
    return stolen, fake_world.play(script)


def test_a_window_says_that_its_callbacks_were_taken_and_the_next_has_them_back(fresh_world: World) -> None:
    stolen, after = fresh_world.call(_taken_over)
    assert "took the buffer callbacks or switched kernel tracing off" in stolen["blind"][0][1]
    assert after["blind"] == []
    assert after["traced"]["total_kernels"] == 6 * 33


def _foreign_kind() -> tuple[Any, Any, Any]:
    seen = fake_world.play(eager_steps(4), between=lambda: fake_world.cupti().fake_foreign_record(5))
    refused = fake_world.tracer().run_window(5)
    fake_world.tracer().pause()
    fake_world.tracer().resume()
    return seen, refused, fake_world.play(eager_steps(4))


def test_records_of_another_client_end_the_windows_until_resumed(fresh_world: World) -> None:
    seen, refused, after = fresh_world.call(_foreign_kind)
    assert "another CUPTI client is recording (activity kind 5)" in seen["blind"][0][1]
    assert "traced" in seen
    assert "another CUPTI client" in refused["blind"][0][1]
    assert "traced" not in refused
    assert after["blind"] == []


def _refused_by_cupti(how: str) -> Any:
    fake_world.begin()
    if how == "multi":
        fake_world.cupti().fake_set_multi_subscriber(1)
    else:
        fake_world.cupti().cuptiFinalize()
    return fake_world.tracer().run_window(5)


def test_several_subscribers_are_left_alone(fresh_world: World) -> None:
    found = fresh_world.call(_refused_by_cupti, "multi")
    assert "another client holds it" in found["blind"][0][1]


def test_a_finalized_cupti_is_a_reason_and_no_crash(fresh_world: World) -> None:
    found = fresh_world.call(_refused_by_cupti, "finalize")
    assert "CUPTI_ERROR_NOT_INITIALIZED" in found["blind"][0][1]


def _manners() -> dict[str, int]:
    for _ in range(5):
        fake_world.begin()
        fake_world.tracer().run_window(2)
    fake = fake_world.cupti()
    names = ("subscriptions", "finalizes", "forced_flushes", "enabled", "registrations")
    return {name: fake.fake_count(name.encode()) for name in names}


def test_windows_subscribe_finalize_and_force_nothing(world: World) -> None:
    counts = world.call(_manners)
    assert counts == {"subscriptions": 0, "finalizes": 0, "forced_flushes": 0, "enabled": 0, "registrations": 1}


def _pause_ends_window() -> tuple[float, bool, int, Any]:
    import threading

    base = fake_world.begin()
    found: list[Any] = []
    window = threading.Thread(target=lambda: found.append(fake_world.tracer().run_window(20_000)))
    window.start()
    assert fake_world.cupti().fake_wait_for_kind(fake_world.MEMSET, 1, 20_000)
    for item in eager_steps(3).work:
        fake_world.launch(item, base)
    fake_world.cupti().fake_advance(ctypes.c_uint64(3_000_000))
    begun = time.monotonic()
    quiet = fake_world.tracer().pause()
    took = time.monotonic() - begun
    kinds = fake_world.cupti().fake_count(b"enabled")
    window.join()
    refused = fake_world.tracer().run_window(5)
    fake_world.tracer().resume()
    assert "paused" in refused["blind"][0][1]
    return took, quiet, kinds, found[0]


def test_pause_ends_a_window_at_once_and_keeps_what_it_saw(world: World) -> None:
    took, quiet, kinds, found = world.call(_pause_ends_window)
    assert (quiet, kinds) == (True, 0)
    assert took < 2.0
    assert found["window"]["ended_early"]
    assert found["traced"]["total_kernels"] == 99


def _obstacles(name: str, value: str) -> str | None:
    os.environ[name] = value
    try:
        found: str | None = fake_world.tracer().obstacle()
        return found
    finally:
        del os.environ[name]


def test_other_tools_are_named_by_their_evidence(world: World) -> None:
    assert world.call(_obstacles, "HOME", "/root") is None
    assert "CUDA_INJECTION64_PATH=/opt/tool.so" in world.call(_obstacles, "CUDA_INJECTION64_PATH", "/opt/tool.so")
    assert "NVTX_INJECTION64_PATH" in world.call(
        _obstacles, "NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so"
    )
    assert "Kineto" in world.call(_obstacles, "KINETO_USE_DAEMON", "1")
    assert "Kineto" in world.call(_obstacles, "KINETO_USE_DAEMON", "0")  # Kineto asks whether it is set
    assert "/opt/tool.so" in world.call(_obstacles, "REPLAYWATCH_CHAIN_INJECTION", "/opt/tool.so")
    assert world.call(_obstacles, "NVTX_INJECTION64_PATH", "/usr/lib/libcupti.so.13") is None
    assert world.call(_obstacles, "CUDA_INJECTION64_PATH", "/opt/libreplaywatch_tracer.so") is None


def _tool_comes_late(tool: Path) -> tuple[Any, Any, int]:
    before = fake_world.play(eager_steps(4))
    registrations = fake_world.cupti().fake_count(b"registrations")
    ctypes.CDLL(str(tool))
    after = fake_world.tracer().run_window(5)
    return before, after, fake_world.cupti().fake_count(b"registrations") - registrations


def test_a_tool_that_comes_later_is_left_cupti_before_the_next_window(fresh_world: World, tmp_path: Path) -> None:
    tool = tmp_path / "libToolsInjection64.so"
    subprocess.run(["c++", "-shared", "-x", "c", "-", "-o", str(tool)], input=b"", check=True)
    before, after, registrations = fresh_world.call(_tool_comes_late, tool)
    assert before["blind"] == []
    assert "NVIDIA Nsight Systems is in this process" in after["blind"][0][1]
    assert "traced" not in after
    assert registrations == 0


def _autonomous() -> list[Any]:
    tracer = fake_world.tracer()
    fake_world.begin()
    assert tracer.start(10, 3)
    found: list[Any] = []
    deadline = time.monotonic() + 20
    while len(found) < 3 and time.monotonic() < deadline:
        now = ctypes.c_uint64()
        fake_world.cupti().cuptiGetTimestamp(ctypes.byref(now))
        for item in eager_steps(3).work:
            fake_world.launch(item, now.value)
        fake_world.cupti().fake_advance(ctypes.c_uint64(2_000_000))
        window = tracer.collect()
        if window:
            found.append(window)
    assert tracer.stop()
    return found


def test_windows_on_their_own_are_collected_in_order(fresh_world: World) -> None:
    found = fresh_world.call(_autonomous)
    assert len(found) == 3
    starts = [window["window"]["start_ns"] for window in found]
    assert starts == sorted(starts)
    assert any("traced" in window for window in found)


def _kernel_of_another_thread() -> None:
    """One that is done, in a buffer of its own: where something comes by itself, nothing is forced."""
    fake, now = fake_world.cupti(), _U64()
    assert fake.fake_wait_for_kind(_U32(fake_world.MEMSET), 1, _U32(20_000))
    assert fake.cuptiGetTimestamp(ctypes.byref(now)) == 0
    fake.fake_launch_kernel(_U32(0), _U32(9), b"done", now, now)
    fake.fake_hold_disable(0)


def _kernel_of_the_window_before() -> None:
    fake_world.cupti().fake_launch_kernel(_U32(0), _U32(9), b"late", _U64(1), _U64(2))


def _held_back_behind_late_ones() -> Any:
    with ThreadPoolExecutor(1) as other:  # begun before the launching thread, whose buffer it must never be given
        other.submit(threading.get_ident).result()
        return fake_world.play(
            Script(eager_steps(6).work, queued_until=700_000),
            lambda: other.submit(_kernel_of_the_window_before).result(),
        )


def test_records_of_the_window_before_do_not_end_the_wait_for_its_own(fresh_world: World) -> None:
    found = fresh_world.call(_held_back_behind_late_ones)
    assert found["devices"][0]["dropped"]["late"] == 1
    assert found["traced"]["total_kernels"] == 2 * 33


def _profiler_after_queued_work(windows: int) -> dict[str, Any]:
    """A window whose last work is still queued, some more, then a profiler, as torch.profiler's guard brings it on."""
    script = eager_steps(4)
    with ThreadPoolExecutor(1) as other:  # begun before the launching thread, whose buffer it must never be given
        other.submit(threading.get_ident).result()
        fake_world.play(
            Script(script.work, script.marks, script.length, queued_until=100_000),
            lambda: other.submit(_kernel_of_another_thread).result(),
        )
        for _ in range(windows):
            fake_world.cupti().fake_hold_disable(1)  # until it is launched
            launched = other.submit(_kernel_of_another_thread)
            fake_world.tracer().run_window(2)
            launched.result()
    before = fake_world.cupti().fake_count(b"forced_flushes")
    paused = fake_world.tracer().pause()
    memory = ctypes.create_string_buffer(1 << 20)
    given_back: list[int] = []

    def requested(buffer: Any, size: Any, most: Any) -> None:
        buffer[0], size[0], most[0] = ctypes.addressof(memory), len(memory), 0

    _kept.extend((memory, _REQUESTED(requested), _COMPLETED(lambda _c, _s, buffer, *_: given_back.append(buffer))))
    cupti = fake_world.cupti()
    assert cupti.cuptiActivityRegisterCallbacks(_kept[-2], _kept[-1]) == 0
    cupti.fake_foreign_record(5)
    cupti.cuptiActivityFlushAll(0)
    fake_world.tracer().resume()
    return {"paused": paused, "own": given_back == [ctypes.addressof(memory)], "buffers": len(given_back),
            "forced": cupti.fake_count(b"forced_flushes") - before}  # fmt: skip


def _kernel_and_theft() -> None:
    fake = fake_world.cupti()
    assert fake.fake_wait_for_kind(_U32(fake_world.MEMSET), 1, _U32(20_000))
    fake.fake_launch_kernel(_U32(0), _U32(9), b"taken", _U64(1), _U64(2))
    _take_callbacks()
    fake.fake_hold_disable(0)


def _forced_in_vain(windows: int) -> list[tuple[int, str]]:
    """Forced flushes and blind spots after each of some windows in which another client takes our buffer with it."""
    fake, counts = fake_world.cupti(), []
    fake_world.begin()
    for _ in range(windows):
        fake.fake_hold_disable(1)
        thread = threading.Thread(target=_kernel_and_theft)
        thread.start()
        found = fake_world.tracer().run_window(2)
        thread.join()
        counts.append((int(fake.fake_count(b"forced_flushes")), found["blind"][0][1]))
    return counts


def test_what_does_not_come_by_force_either_is_not_forced_for_ever(fresh_world: World) -> None:
    reason = "CUPTI took record buffers (1) and gave none back in time"
    assert fresh_world.call(_forced_in_vain, 4) == [(forced, reason) for forced in (1, 2, 2, 2)]


@pytest.mark.parametrize("windows", [0, 5])  # after three windows a buffer that is out counts as lost
def test_a_profiler_never_gets_its_records_into_a_buffer_of_ours(fresh_world: World, windows: int) -> None:
    seen = fresh_world.call(_profiler_after_queued_work, windows)
    assert seen == {"paused": True, "own": True, "buffers": 1, "forced": 1}


def _play_on_running_clock(script: Script, length_ns: int) -> Any:
    """One window in which a script runs on a clock that runs too, from the moment at which kernels are recorded."""
    fake = fake_world.cupti()
    fake.fake_hold_disable(1)

    def launch_all() -> None:
        try:
            assert fake.fake_wait_for_kind(ctypes.c_uint32(fake_world.MEMSET), 1, ctypes.c_uint32(20_000))
            base = time.time_ns()
            for item in script.work:
                fake_world.launch(item, base)
            for at, mode in script.marks:
                fake_world.tracer().mark_step(base + at, mode)
            time.sleep(length_ns / 1e9 + 0.002)
            fake.fake_set_clock(ctypes.c_uint64(time.time_ns()))
        finally:
            fake.fake_hold_disable(0)

    launcher = threading.Thread(target=launch_all)
    launcher.start()
    found = fake_world.tracer().run_window(15)
    launcher.join()
    return found


def _with_a_clock_of_its_own(rate: int) -> tuple[Any, Any]:
    script = eager_steps(30)
    script.marks.extend(_marks(30))
    before = fake_world.play(script)
    began = fake_world.begin() - 3_000_000_000  # a tick counter that has run since some time before
    fake_world.cupti().fake_set_ticks(ctypes.c_uint64(began), ctypes.c_uint32(rate))
    return before, _play_on_running_clock(script, 30 * 363_000)


@pytest.mark.parametrize("rate", [2100, 1000, 24])
def test_stamps_are_read_on_the_clock_that_another_client_gave_to_cupti(fresh_world: World, rate: int) -> None:
    before, after = fresh_world.call(_with_a_clock_of_its_own, rate)
    assert before["window"]["clock_rate"] == 1.0
    assert after["window"]["clock_rate"] == pytest.approx(rate / 1000, rel=0.02)
    assert after["blind"] == []
    assert after["window"]["marks"] == before["window"]["marks"] == 29
    was, now = before["traced"], after["traced"]
    assert now["total_kernels"] == was["total_kernels"] == 30 * 33
    assert now["steps"] == was["steps"]
    for name in ("kernel_ns", "busy_ns", "span_ns"):
        assert now[name] == pytest.approx(was[name], rel=0.05), name
