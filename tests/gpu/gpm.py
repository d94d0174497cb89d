"""NVML's counters of a device (GPM, Hopper and later): how busy it was between two readings, asked from outside.

Nothing is attached to the process that works. `ENGINE` is the share of time in which the graphics and compute engine
was active, in per cent; what lies between kernels of one graph counts as active, what a slow host leaves does not.
"""

from __future__ import annotations

import importlib
import time
from threading import Event, Thread
from typing import Any

ENGINE = "graphics_util"
METRICS = {ENGINE: 1, "sm_util": 2, "sm_occupancy": 3, "dram_bw_util": 10}  # nvml.h, NVML_GPM_METRIC_*
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


class Counters:
    """Two samples of a device and what lies between them. `device`: its UUID, or its index as NVML numbers them."""

    def __init__(self, device: str | int) -> None:
        self.nvml = nvml = library()
        nvml.nvmlInit()
        by = nvml.nvmlDeviceGetHandleByUUID if isinstance(device, str) else nvml.nvmlDeviceGetHandleByIndex
        self.device = by(device)
        self.supported = bool(nvml.nvmlGpmQueryDeviceSupport(self.device).isSupportedDevice)
        self.samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]

    def read(self, at: int) -> None:
        """Take the first or the second sample."""
        self.nvml.nvmlGpmSampleGet(self.device, self.samples[at])

    def between(self) -> dict[str, float]:
        """The metrics between the samples, in per cent."""
        wanted = self.nvml.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = self.nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        wanted.sample1, wanted.sample2 = self.samples
        for at, number in enumerate(METRICS.values()):
            wanted.metrics[at].metricId = number
        self.nvml.nvmlGpmMetricsGet(wanted)
        return {name: float(wanted.metrics[at].value) for at, name in enumerate(METRICS)}

    def turn(self) -> None:
        """The second sample becomes the first."""
        self.samples.reverse()


class Activity:
    """The engine's activity, read again and again on a thread. Shape of a row: begin and end in Unix ns, per cent."""

    def __init__(self, device: str | int) -> None:
        self.rows: list[tuple[int, int, float]] = []
        self.problem: str | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, args=(device,), daemon=True)
        self._thread.start()

    def _run(self, device: str | int) -> None:
        try:
            counters = Counters(device)
            counters.read(0)
            begin_ns = time.time_ns()
            while not self._stop.wait(PERIOD_S):
                counters.read(1)
                end_ns = time.time_ns()
                self.rows.append((begin_ns, end_ns, counters.between()[ENGINE]))
                counters.turn()
                begin_ns = end_ns
        except Exception as error:  # a measurement beside the one that matters
            self.problem = f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(5)

    def mean(self, begin_ns: int, end_ns: int) -> float | None:
        """Per cent over the readings that lie inside a stretch; None where there are none."""
        inside = [(end - begin, share) for begin, end, share in self.rows if begin >= begin_ns and end <= end_ns]
        total = sum(length for length, _ in inside)
        return sum(length * share for length, share in inside) / total if total else None
