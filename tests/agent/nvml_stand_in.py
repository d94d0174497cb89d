"""A stand-in for the module `pynvml` that plays a recording: same functions, same errors, and as strict.

It refuses everything before nvmlInit and after nvmlShutdown, and handles of another machine, as NVML does.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from replaywatch.agent.devices import Nvml

RECORDED = Path(__file__).parent / "data" / "nvml-h200.json"


class StandIn:
    """The recorded machine. `refused` names functions and the error class that each raises instead."""

    NVMLError = pynvml.NVMLError

    def __init__(
        self,
        recording: Mapping[str, Any],
        refused: Mapping[str, str] | None = None,
        mig: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        self._recording = recording
        self._refused = dict(refused or {})
        self._mig = mig
        self.is_ready = False

    def nvmlInit(self) -> None:
        self._refuse("nvmlInit")
        self.is_ready = True

    def nvmlShutdown(self) -> None:
        self._need_ready()
        self.is_ready = False

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        self._need_ready()
        self._refuse("nvmlDeviceGetHandleByIndex")
        return _Handle(self._recording["devices"][index])

    def nvmlDeviceGetMigMode(self, handle: _Handle) -> Any:
        return [1, 1] if self._mig and not handle.is_instance else self._play("nvmlDeviceGetMigMode", handle)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: _Handle) -> Any:
        return 7 if self._mig else self._play("nvmlDeviceGetMaxMigDeviceCount", handle)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: _Handle, index: int) -> Any:
        if index >= len(self._mig):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return _Handle({**handle.calls, **self._mig[index]}, is_instance=True)

    def __getattr__(self, name: str) -> Any:
        if name in self._recording["system"]:
            return lambda: self._play_value(name, self._recording["system"][name])
        if any(name in device for device in self._recording["devices"]):
            return lambda handle, *args: self._play(name, handle, *args)
        raise AttributeError(name)

    def _play(self, name: str, handle: _Handle, *args: Any) -> Any:
        key = f"{name}:memory" if args == (pynvml.NVML_CLOCK_MEM,) and "Clock" in name else name
        return self._play_value(name, handle.calls[key])

    def _play_value(self, name: str, answer: Mapping[str, Any]) -> Any:
        self._need_ready()
        self._refuse(name)
        if "raised" in answer:
            raise pynvml.NVMLError(_code(answer["raised"]))
        return _structure(answer["returned"])

    def _refuse(self, name: str) -> None:
        if name in self._refused:
            raise pynvml.NVMLError(_code(self._refused[name]))

    def _need_ready(self) -> None:
        if not self.is_ready:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)


class Counting(StandIn):
    """The recorded machine with counters whose engine was active for `seconds` so far, of `now` seconds."""

    NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t

    def __init__(self, refused: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(recorded(), refused=refused, **more)
        self.now, self.active, self.supported, self.status = 100.0, 40.0, 1, 0
        self.value: float | None = None
        self.taken: dict[int, tuple[float, float]] = {}
        self.alive = 0

    def pass_time(self, seconds: float, share: float) -> None:
        self.now, self.active = self.now + seconds, self.active + seconds * share

    def nvmlGpmQueryDeviceSupport(self, handle: Any) -> Any:
        self._check("nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=self.supported)

    def nvmlGpmSampleAlloc(self) -> Any:
        self._check("nvmlGpmSampleAlloc")
        self.alive += 1
        return pynvml.c_nvmlGpmSample_t(pynvml.struct_c_nvmlGpmSample_t())

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self._check("nvmlGpmSampleFree")
        self.alive -= 1

    def nvmlGpmSampleGet(self, handle: Any, sample: Any) -> Any:
        self._check("nvmlGpmSampleGet")
        self.taken[_address(sample)] = (self.now, self.active)
        return sample

    def nvmlGpmMetricsGet(self, wanted: Any) -> Any:
        self._check("nvmlGpmMetricsGet")
        assert (wanted.version, wanted.numMetrics, wanted.metrics[0].metricId) == (1, 1, 1)
        first, second = (self.taken[_address(sample)] for sample in (wanted.sample1, wanted.sample2))
        assert second[0] > first[0]
        share = (second[1] - first[1]) / (second[0] - first[0]) * 100
        wanted.metrics[0].value = share if self.value is None else self.value
        wanted.metrics[0].nvmlReturn = self.status
        return wanted

    def _check(self, name: str) -> None:
        self._need_ready()
        self._refuse(name)


def _address(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0


class _Handle:
    def __init__(self, calls: Mapping[str, Any], *, is_instance: bool = False) -> None:
        self.calls = calls
        self.is_instance = is_instance


def recorded() -> dict[str, Any]:
    """The recording of one H200."""
    value: dict[str, Any] = json.loads(RECORDED.read_text())
    return value


def no_devices() -> Nvml:
    """A machine whose driver is not there."""
    return Nvml(StandIn(recorded(), refused={"nvmlInit": "NVMLError_DriverNotLoaded"}))


def _code(name: str) -> int:
    return next(code for code, kind in pynvml.NVMLError._valClassMapping.items() if kind.__name__ == name)


def _structure(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{k: _structure(v) for k, v in value.items()})
    return [_structure(v) for v in value] if isinstance(value, list) else value
