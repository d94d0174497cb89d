"""`Activity`: the share of time in which a device's compute engine was active, from NVML's counters (GPM).

Hopper and later; asked from outside of the process that works, as DCGM asks for its profiling fields there. GPM does
not take the counters that profilers lock (NVIDIA/DCGM#62). What lies between the kernels of one graph counts as active,
what a slow host leaves between launches does not: on an H200 eager decode steps showed 32 to 38 %, the same steps as
graphs 99 %. Read every 50 ms it changed no step there: -0.01 % (-0.02 to +0.03) with graphs
(docs/data/device_counters-2026-11-30.json).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

ENGINE: Final = 1  # nvml.h, NVML_GPM_METRIC_GRAPHICS_UTIL
# How a function of NVML is called: None where it is missing, not supported or refused.
Call = Callable[..., Any]


class Activity:
    """Two samples of each device, of which the older is always that of the reading before."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._samples: dict[str, list[Any]] = {}

    def ratio(self, library: Any, uuid: str, handle: Any) -> float | None:
        """Share of the time since the last call for this device; None at first, and where it cannot be told."""
        samples = self._samples.get(uuid)
        if samples is None:
            self._samples[uuid] = self._begin(handle)
            return None
        if not samples:
            return None
        if self._call("nvmlGpmSampleGet", handle, samples[1]) is None:  # a driver that was loaded anew: begin anew
            self._free(self._samples.pop(uuid))
            return None
        share = self._between(library, samples)
        samples.reverse()
        return share

    def close(self) -> None:
        """Give all samples back."""
        for samples in self._samples.values():
            self._free(samples)
        self._samples.clear()

    def _begin(self, handle: Any) -> list[Any]:
        support = self._call("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return []
        samples = [self._call("nvmlGpmSampleAlloc") for _ in range(2)]
        if None in samples or self._call("nvmlGpmSampleGet", handle, samples[0]) is None:
            self._free(samples)
            return []
        return samples

    def _free(self, samples: list[Any]) -> None:
        for sample in samples:
            if sample is not None:
                self._call("nvmlGpmSampleFree", sample)

    def _between(self, library: Any, samples: list[Any]) -> float | None:
        wanted = library.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = library.NVML_GPM_METRICS_GET_VERSION, 1
        wanted.sample1, wanted.sample2 = samples
        wanted.metrics[0].metricId = ENGINE
        if self._call("nvmlGpmMetricsGet", wanted) is None or wanted.metrics[0].nvmlReturn:
            return None
        share = float(wanted.metrics[0].value) / 100
        return min(1.0, share) if math.isfinite(share) and share >= 0 else None
