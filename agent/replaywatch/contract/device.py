"""`DeviceState`: what a device was doing while a window was taken: clocks, throttling, memory, sharing.

Read by the agent from NVML, so that a slow step can be told from a slow device. Not exposed as metrics: dcgm-exporter
does that, and the `gpu` and `UUID` labels join with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Why the clocks are below their maximum. Closed; NVML's bit of the same meaning stands in agent/devices.py.
THROTTLE_REASONS: Final = (
    "idle",
    "application_clocks",
    "power_cap",
    "hardware_slowdown",
    "sync_boost",
    "thermal",
    "hardware_thermal",
    "power_brake",
    "display_clock",
    "other",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """One reading of a device. Each field is None where the device or its driver does not tell.

    Units: clocks hertz, power watts, temperature degrees Celsius, `_bytes` bytes. `processes` counts compute processes,
    `mps_processes` those that share the device through MPS. `mig_enabled`: the device is cut into instances, and its
    clocks and processes are not those of one workload alone. `active_ratio`: share of the time since the reading before
    in which the compute engine was active, whoever used it (NVML's GPM, Hopper and later).
    """

    sm_clock_hz: int | None = None
    sm_clock_max_hz: int | None = None
    memory_clock_hz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    processes: int | None = None
    mps_processes: int | None = None
    mig_enabled: bool | None = None
    exclusive: bool | None = None
    power_watts: float | None = None
    temperature_celsius: int | None = None
    active_ratio: float | None = None
