"""The agent's own reading of how active a device is (NVML's GPM), for measurements: once, and again and again."""

from __future__ import annotations

import importlib
import time
from threading import Event, Thread
from typing import Any

from replaywatch.agent.activity import Activity

MODULES = ("pynvml", "vllm.third_party.pynvml")
PERIOD_S = 0.25


def library() -> Any:
    """The module of NVML's functions. Raises: ImportError where there is none."""
    for name in MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError(f"none of {', '.join(MODULES)} is installed")


class Engine:
    """A device's compute engine. `device`: its UUID, or its index as NVML numbers them."""

    def __init__(self, device: str | int) -> None:
        self._nvml = nvml = library()
        nvml.nvmlInit()
        by = nvml.nvmlDeviceGetHandleByUUID if isinstance(device, str) else nvml.nvmlDeviceGetHandleByIndex
        self._handle = by(device)
        self._activity = Activity(self._call)

    def active_ratio(self) -> float | None:
        """Share of the time since the last call; None at first, and where NVML does not tell."""
        return self._activity.ratio(self._nvml, "the device", self._handle)

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*args)
        except (AttributeError, self._nvml.NVMLError):
            return None


class Readings:
    """Activity, read again and again on a thread. Shape of a row: begin and end in Unix nanoseconds, a share."""

    def __init__(self, device: str | int) -> None:
        self.rows: list[tuple[int, int, float]] = []
        self.problem: str | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, args=(device,), daemon=True)
        self._thread.start()

    def _run(self, device: str | int) -> None:
        try:
            engine = Engine(device)
            engine.active_ratio()
            begin_ns = time.time_ns()
            while not self._stop.wait(PERIOD_S):
                share, end_ns = engine.active_ratio(), time.time_ns()
                if share is not None:
                    self.rows.append((begin_ns, end_ns, share))
                begin_ns = end_ns
        except Exception as error:  # a measurement beside the one that matters
            self.problem = f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(5)

    def mean(self, begin_ns: int, end_ns: int) -> float | None:
        """The share over the readings that lie inside a stretch; None where there are none."""
        inside = [(end - begin, share) for begin, end, share in self.rows if begin >= begin_ns and end <= end_ns]
        total = sum(length for length, _ in inside)
        return sum(length * share for length, share in inside) / total if total else None
