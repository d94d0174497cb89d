"""The devices of this machine as NVML tells: identity, clocks, throttling, memory, processes, MIG and MPS.

Whatever NVML refuses is None; without NVML the table is empty and says why. Nothing here raises. A call can hang for
seconds when a device has fallen off its bus, so reading happens on a thread of its own (`DeviceWatch`).
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from types import ModuleType
from typing import Any, Final

from replaywatch.agent.activity import Activity
from replaywatch.agent.ledger import Ledger
from replaywatch.contract.device import DeviceState

log = logging.getLogger("replaywatch.agent")
# Source: nvml.h, nvmlClocksEventReasons and nvmlClocksThrottleReasons.
THROTTLE_BITS: Final = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal",
    0x040: "hardware_thermal",
    0x080: "power_brake",
    0x100: "display_clock",
}
_CLOCK_SM, _CLOCK_MEMORY, _SENSOR_GPU, _COMPUTE_DEFAULT = 1, 2, 0, 0
_MHZ: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device, or one MIG instance of it. Shape: `index` as nvidia-smi and dcgm-exporter number it."""

    index: int
    uuid: str
    model: str | None
    state: DeviceState
    pids: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTable:
    """All devices at one moment. Empty with `blind`, a sentence, where nothing could be read."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    blind: str | None = None
    by_uuid: Mapping[str, Device] = field(default_factory=dict)

    def of_process(self, pid: int | None) -> Device | None:
        """The one device that a process computes on; None when it is on none or on several."""
        found = [d for d in self.devices if pid in d.pids]
        return found[0] if len(found) == 1 else None

    @property
    def only(self) -> Device | None:
        """The device, where the machine has one."""
        return self.devices[0] if len(self.devices) == 1 else None


class Nvml:
    """A reader over the `pynvml` module, or a stand-in with the same functions and errors."""

    def __init__(self, library: ModuleType | Any | None = None) -> None:
        self._library = library
        self._ready = False
        self._activity = Activity(self._call)

    def read(self) -> DeviceTable:
        """All devices now; never raises."""
        try:
            if self._library is None:
                self._library = importlib.import_module("pynvml")
            if not self._ready:
                self._library.nvmlInit()
                self._ready = True
            return self._table()
        except ImportError:
            return DeviceTable(blind="the module pynvml is not installed; install the extra replaywatch[agent]")
        except self._errors() as error:
            self._ready = False
            return DeviceTable(blind=f"NVML cannot be used ({_text(error)}); is the NVIDIA driver in this container?")

    def close(self) -> None:
        """Let go of NVML."""
        if self._library is not None and self._ready:
            self._activity.close()
            self._ask(self._library.nvmlShutdown)
            self._ready = False

    def _errors(self) -> tuple[type[Exception], ...]:
        # AttributeError: an older pynvml without the function. ValueError, UnicodeDecodeError: odd answers (WSL).
        own = (self._library.NVMLError,) if self._library is not None else ()
        return (*own, AttributeError, ValueError, TypeError, OSError)

    def _ask(self, call: Callable[..., Any], *args: Any) -> Any:
        """What a call answers; None where it is not supported or fails."""
        try:
            return call(*args)
        except self._errors():
            return None

    def _call(self, name: str, *args: Any) -> Any:
        function = getattr(self._library, name, None)
        return None if function is None else self._ask(function, *args)

    def _table(self) -> DeviceTable:
        assert self._library is not None
        devices = []
        for index in range(self._library.nvmlDeviceGetCount()):
            handle = self._call("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                devices += self._devices(index, handle)
        return DeviceTable(
            devices=tuple(devices),
            driver=_text(self._call("nvmlSystemGetDriverVersion")),
            blind=None if devices else "NVML lists no device; give the container one, or --device-seconds 0",
            by_uuid={d.uuid: d for d in devices},
        )

    def _devices(self, index: int, handle: Any) -> list[Device]:
        """The device behind a handle, and its MIG instances under the same index."""
        mig_mode = self._call("nvmlDeviceGetMigMode", handle)
        mig = bool(mig_mode[0]) if mig_mode else None
        instances = self._call("nvmlDeviceGetMaxMigDeviceCount", handle) or 0 if mig else 0
        handles = [self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, i) for i in range(instances)]
        whole = self._device(index, handle, mig)
        parts = [self._device(index, h, mig) for h in handles if h is not None]
        found = [d for d in parts if d is not None]
        if whole is not None:
            elsewhere: frozenset[int] = frozenset().union(*(d.pids for d in found))
            found.append(replace(whole, pids=whole.pids - elsewhere))
        return found

    def _device(self, index: int, handle: Any, mig: bool | None) -> Device | None:
        uuid = _text(self._call("nvmlDeviceGetUUID", handle))
        if uuid is None:
            return None
        processes = self._call("nvmlDeviceGetComputeRunningProcesses", handle)
        shared = self._call("nvmlDeviceGetMPSComputeRunningProcesses", handle)
        return Device(
            index=index,
            uuid=uuid,
            model=_text(self._call("nvmlDeviceGetName", handle)),
            state=self._state(handle, mig, processes, shared, self._active(uuid, handle, mig)),
            pids=frozenset(p.pid for p in (*(processes or ()), *(shared or ()))),
        )

    def _active(self, uuid: str, handle: Any, mig: bool | None) -> float | None:
        """Of a whole device; instances of one would have to be asked for by their own numbers."""
        return None if mig else self._activity.ratio(self._library, uuid, handle)

    def _state(
        self, handle: Any, mig: bool | None, processes: Any, shared: Any, active_ratio: float | None
    ) -> DeviceState:
        memory = self._call("nvmlDeviceGetMemoryInfo", handle)
        mode = self._call("nvmlDeviceGetComputeMode", handle)
        power_mw = self._call("nvmlDeviceGetPowerUsage", handle)
        return DeviceState(
            sm_clock_hz=_hz(self._call("nvmlDeviceGetClockInfo", handle, _CLOCK_SM)),
            sm_clock_max_hz=_hz(self._call("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM)),
            memory_clock_hz=_hz(self._call("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY)),
            throttle_reasons=self._throttle(handle),
            memory_used_bytes=memory.used if memory is not None else None,
            memory_total_bytes=memory.total if memory is not None else None,
            processes=len(processes) if processes is not None else None,
            mps_processes=len(shared) if shared is not None else None,
            mig_enabled=mig,
            exclusive=mode != _COMPUTE_DEFAULT if mode is not None else None,
            power_watts=power_mw / 1000 if power_mw is not None else None,
            temperature_celsius=self._call("nvmlDeviceGetTemperature", handle, _SENSOR_GPU),
            active_ratio=active_ratio,
        )

    def _throttle(self, handle: Any) -> tuple[str, ...] | None:
        bits = self._call("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # the name before driver 535
            bits = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else throttle_reasons(bits)


class DeviceWatch:
    """Reads the devices every few seconds on a thread of its own; `latest` is what it read last."""

    def __init__(self, nvml: Nvml, period_s: float, ledger: Ledger) -> None:
        self.latest = DeviceTable(blind="the devices were not read yet")
        self._nvml = nvml
        self._period_s = period_s
        self._ledger = ledger
        self._stop = Event()
        self._thread = Thread(target=self._run, name="replaywatch-devices", daemon=True)

    def start(self) -> None:
        """Begin to read; does nothing where the period is 0."""
        if self._period_s > 0:
            self._thread.start()
        else:
            self.latest = DeviceTable(blind="reading devices is turned off (--device-seconds 0)")

    def stop(self, timeout_s: float) -> None:
        """Stop reading; a reading that hangs is left behind."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            before, self.latest = self.latest.blind, self._nvml.read()
            if self.latest.blind not in (None, before):
                log.info("windows will lack the state of their device: %s", self.latest.blind)
            self._ledger.add("replaywatch_agent_device_reads_total", "blind" if self.latest.blind else "ok")
            self._stop.wait(self._period_s)
        self._nvml.close()


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Names of NVML's bits; bits that this release does not know become "other"."""
    known = tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit)
    return (*known, "other") if bits & ~sum(THROTTLE_BITS) else known


def _hz(mhz: Any) -> int | None:
    return None if mhz is None else mhz * _MHZ


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
