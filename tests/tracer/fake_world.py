"""A process of its own with the fake CUPTI, the fake driver and the tracer in it, played by scripts.

The libraries have the sonames of the real ones, so they must not be loaded into the process of the tests.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.builds import ROOT

CONCURRENT_KERNEL = 10
MEMSET = 2  # the last kind that a window switches on
_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64
_WINDOW_MS = 15
_PATIENCE_MS = 20_000


@dataclass(frozen=True)
class Eager:
    """A kernel from no graph; times from the beginning of the window."""

    name: str
    start: int
    end: int
    stream: int = 7
    device: int = 0


@dataclass(frozen=True)
class Copy:
    """A copy (1 host to device, 2 device to host, 8 on the device) or, with kind 0, a memory set."""

    kind: int
    size: int
    start: int
    end: int
    stream: int = 7
    device: int = 0


@dataclass(frozen=True)
class Replay:
    """One replay of a graph; its nodes' times."""

    graph: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    streams: tuple[int, ...] = ()
    device: int = 0
    correlation: int = 0
    stampless: bool = False


@dataclass(frozen=True)
class Script:
    """Work in the order of its launches, and marks of steps (time, mode)."""

    work: list[Eager | Copy | Replay]
    marks: list[tuple[int, str | None]] = field(default_factory=list)
    length: int = 0
    queued_until: int = 0  # from here on work is not done yet when the window is flushed


class World:
    """The process; calls run in it one after another."""

    def __init__(self, build: Path, version: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_enter, initargs=(str(build), version))

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of a test module, called in the process."""
        return self._pool.submit(function, *arguments).result(timeout=120)

    def play(self, script: Script) -> Any:
        """What one window saw of a script."""
        return self.call(play, script)


class _Inside:
    cupti: ctypes.CDLL
    cuda: ctypes.CDLL
    tracer: Any
    version = 0
    names: dict[str, ctypes.c_char_p]


def _enter(build: str, version: int) -> None:
    sys.path.insert(0, str(ROOT))  # test modules are known as tests.tracer.…
    _Inside.cupti = ctypes.CDLL(f"{build}/libcupti.so.13", ctypes.RTLD_GLOBAL)
    _Inside.cuda = ctypes.CDLL(f"{build}/libcuda.so.1", ctypes.RTLD_GLOBAL)
    _Inside.cupti.fake_count.restype = ctypes.c_uint64
    _Inside.cuda.fake_cuda_get.restype = ctypes.c_int64
    _Inside.cupti.fake_reset(_U32(version))
    _Inside.version = version
    _Inside.names = {}
    _Inside.tracer = None
    _Inside.build = build  # type: ignore[attr-defined]


def tracer() -> Any:
    """The binding inside the process."""
    if _Inside.tracer is None:
        from replaywatch.probe.tracer import open_tracer

        _Inside.tracer = open_tracer(f"{_Inside.build}/libreplaywatch_tracer.so")  # type: ignore[attr-defined]
    return _Inside.tracer


def cupti() -> ctypes.CDLL:
    """The fake CUPTI inside the process."""
    return _Inside.cupti


def cuda() -> ctypes.CDLL:
    """The fake driver inside the process."""
    return _Inside.cuda


def begin() -> int:
    """Reset the fake, with its clock at the time of day; the time."""
    _Inside.cupti.fake_reset(_U32(_Inside.version))
    now = time.time_ns()
    _Inside.cupti.fake_set_clock(_U64(now))
    return now


def play(script: Script, between: Callable[[], None] | None = None) -> Any:
    """One window in which a script runs; `between` runs after it, still inside the window."""
    base = begin()
    fake = _Inside.cupti
    length = script.length or max([0, *(_end_of(item) for item in script.work)]) + 1000
    fake.fake_jump_when_enabled(_U64(base + (script.queued_until or length)))
    fake.fake_hold_disable(1)
    launcher = threading.Thread(target=_launch_all, args=(script, base, between))
    launcher.start()
    found = tracer().run_window(_WINDOW_MS)
    launcher.join()
    return found


def _launch_all(script: Script, base: int, between: Callable[[], None] | None) -> None:
    fake = _Inside.cupti
    try:
        assert fake.fake_wait_for_kind(_U32(MEMSET), 1, _U32(_PATIENCE_MS))
        for item in script.work:
            launch(item, base)
        for at, mode in script.marks:
            tracer().mark_step(base + at, mode)
        if between:
            between()
    finally:
        fake.fake_hold_disable(0)


def launch(item: Eager | Copy | Replay, base: int) -> None:
    """Launch one piece of work."""
    fake = _Inside.cupti
    if isinstance(item, Eager):
        name = _Inside.names.setdefault(item.name, ctypes.c_char_p(item.name.encode()))
        fake.fake_launch_kernel(
            _U32(item.device), _U32(item.stream), name, _U64(base + item.start), _U64(base + item.end)
        )
    elif isinstance(item, Copy):
        times = (_U64(base + item.start), _U64(base + item.end))
        where = (_U32(item.device), _U32(item.stream))
        if item.kind:
            fake.fake_launch_copy(*where, _U32(item.kind), _U64(item.size), *times)
        else:
            fake.fake_launch_set(*where, _U64(item.size), *times)
    else:
        _launch_replay(item, base)


def _launch_replay(item: Replay, base: int) -> None:
    count = len(item.starts)
    fake = _Inside.cupti
    fake.fake_set_stampless(int(item.stampless))
    fake.fake_launch_graph(
        _U32(item.graph),
        _U32(item.device),
        _U32(count),
        (_U32 * count)(*(item.streams or (7,) * count)),
        (_U64 * count)(*(base + t for t in item.starts)),
        (_U64 * count)(*(base + t for t in item.ends)),
        _U32(item.correlation),
    )
    fake.fake_set_stampless(0)


def _end_of(item: Eager | Copy | Replay) -> int:
    return max(item.ends) if isinstance(item, Replay) else item.end
