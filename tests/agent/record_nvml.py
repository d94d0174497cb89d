"""Records what NVML answers on this machine, as JSON that `nvml_stand_in.StandIn` plays back in tests without a GPU.

    python tests/agent/record_nvml.py > tests/agent/data/nvml-h200.json

Each answer is what the real `pynvml` function returned, or the name of the error that it raised.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pynvml

DEVICE_CALLS: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetUUID": (),
    "nvmlDeviceGetName": (),
    "nvmlDeviceGetMemoryInfo": (),
    "nvmlDeviceGetComputeRunningProcesses": (),
    "nvmlDeviceGetMPSComputeRunningProcesses": (),
    "nvmlDeviceGetCurrentClocksEventReasons": (),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (),
    "nvmlDeviceGetMigMode": (),
    "nvmlDeviceGetMaxMigDeviceCount": (),
    "nvmlDeviceGetComputeMode": (),
    "nvmlDeviceGetPowerUsage": (),
    "nvmlDeviceGetTemperature": (0,),
    "nvmlDeviceGetClockInfo": (1,),
    "nvmlDeviceGetMaxClockInfo": (1,),
}
SYSTEM_CALLS = ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount")


def plain(value: Any) -> Any:
    """An answer as JSON: structures become objects, arrays lists."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if hasattr(value, "__dict__"):
        return {k: plain(v) for k, v in vars(value).items()}
    return value


def answer(call: Callable[..., Any], *args: Any) -> Any:
    """What a call returned, or the error it raised."""
    try:
        return {"returned": plain(call(*args))}
    except pynvml.NVMLError as error:
        return {"raised": type(error).__name__}


def record() -> dict[str, Any]:
    """Every answer of this machine."""
    pynvml.nvmlInit()
    system = {name: answer(getattr(pynvml, name)) for name in SYSTEM_CALLS}
    devices = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        calls = {name: answer(getattr(pynvml, name), handle, *args) for name, args in DEVICE_CALLS.items()}
        calls["nvmlDeviceGetClockInfo:memory"] = answer(pynvml.nvmlDeviceGetClockInfo, handle, 2)
        calls["nvmlDeviceGetMaxClockInfo:memory"] = answer(pynvml.nvmlDeviceGetMaxClockInfo, handle, 2)
        devices.append(calls)
    pynvml.nvmlShutdown()
    return {"recorder_pid": os.getpid(), "system": system, "devices": devices}


if __name__ == "__main__":
    json.dump(record(), sys.stdout, indent=1)
