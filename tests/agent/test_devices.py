"""Devices: what NVML says becomes facts, what it refuses becomes None, and nothing ever raises."""

from __future__ import annotations

from threading import Event
from typing import Any

import pynvml
import pytest

from agent.frames import wait_until
from agent.nvml_stand_in import StandIn, recorded
from replaywatch.agent.devices import DeviceWatch, Nvml, throttle_reasons
from replaywatch.agent.ledger import Ledger
from replaywatch.contract.device import THROTTLE_REASONS

FUNCTIONS = sorted({*recorded()["devices"][0], *recorded()["system"]} - {"nvmlDeviceGetCount"})


def test_a_recorded_h200_is_read_as_it_was() -> None:
    table = Nvml(StandIn(recorded())).read()
    (device,) = table.devices
    assert (device.model, table.driver, table.blind) == ("NVIDIA H200", "580.159.04", None)
    assert device.uuid == "GPU-292be603-ad89-3843-4b02-5c4ef53d13ec"
    assert device.state.sm_clock_hz == 1_980_000_000
    assert device.state.memory_clock_hz == 3_201_000_000
    assert device.state.memory_used_bytes == 1_446_903_808
    assert device.state.throttle_reasons == ()
    assert (device.state.mig_enabled, device.state.mps_processes, device.state.exclusive) == (False, 0, False)
    assert device.state.power_watts == pytest.approx(367.704)
    assert table.of_process(419) is device
    assert table.of_process(420) is None


@pytest.mark.parametrize("error", ["NVMLError_NotSupported", "NVMLError_NoPermission", "NVMLError_GpuIsLost"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_refused_call_costs_only_its_own_fact(function: str, error: str) -> None:
    full = Nvml(StandIn(recorded())).read()
    table = Nvml(StandIn(recorded(), refused={function: error})).read()
    if function == "nvmlDeviceGetUUID":
        assert table.devices == ()
        assert table.blind is not None
        return
    (device,) = table.devices
    assert device.uuid == full.devices[0].uuid
    changed = [
        f for f in full.devices[0].state.__slots__ if getattr(device.state, f) != getattr(full.devices[0].state, f)
    ]
    assert all(getattr(device.state, f) is None for f in changed)
    assert len(changed) <= 3


def test_everything_refused_is_a_device_without_facts() -> None:
    refused = dict.fromkeys([f for f in FUNCTIONS if f != "nvmlDeviceGetUUID"], "NVMLError_NotSupported")
    (device,) = Nvml(StandIn(recorded(), refused=refused)).read().devices
    assert {getattr(device.state, f) for f in device.state.__slots__} == {None}
    assert device.model is None


@pytest.mark.parametrize("error", ["NVMLError_DriverNotLoaded", "NVMLError_LibraryNotFound", "NVMLError_NoPermission"])
def test_no_driver_is_blind_and_says_so(error: str) -> None:
    table = Nvml(StandIn(recorded(), refused={"nvmlInit": error})).read()
    assert table.devices == ()
    assert table.blind is not None
    assert "NVML cannot be used" in table.blind


def test_the_real_library_never_raises() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        table = Nvml().read()
        assert table.blind is not None
        assert table.devices == ()
    else:
        pynvml.nvmlShutdown()
        assert Nvml().read().devices


def test_a_driver_that_comes_later_is_found() -> None:
    library = StandIn(recorded(), refused={"nvmlInit": "NVMLError_DriverNotLoaded"})
    nvml = Nvml(library)
    assert nvml.read().blind is not None
    library._refused.clear()
    assert nvml.read().blind is None


def test_mig_instances_are_devices_under_one_index() -> None:
    parts = tuple(
        {
            "nvmlDeviceGetUUID": {"returned": f"MIG-{n}"},
            "nvmlDeviceGetComputeRunningProcesses": {"returned": [{"pid": 419}] if n == 1 else []},
            "nvmlDeviceGetClockInfo": {"raised": "NVMLError_NotSupported"},
        }
        for n in range(2)
    )
    table = Nvml(StandIn(recorded(), mig=parts)).read()
    assert [(d.index, d.uuid) for d in table.devices] == [
        (0, "MIG-0"),
        (0, "MIG-1"),
        (0, "GPU-292be603-ad89-3843-4b02-5c4ef53d13ec"),
    ]
    found = table.of_process(419)
    assert found is not None
    assert found.uuid == "MIG-1"
    assert found.state.mig_enabled is True
    assert found.state.sm_clock_hz is None
    assert table.only is None


def test_throttle_bits_have_names_and_unknown_ones_are_other() -> None:
    assert throttle_reasons(0) == ()
    assert throttle_reasons(0x4 | 0x40) == ("power_cap", "hardware_thermal")
    assert throttle_reasons(0x1 << 40) == ("other",)
    assert set(throttle_reasons((1 << 64) - 1)) == set(THROTTLE_REASONS)


def test_a_reading_that_hangs_holds_up_nobody() -> None:
    release = Event()

    class Hanging(StandIn):
        def nvmlInit(self) -> None:
            release.wait(10)
            super().nvmlInit()

    library: Any = Hanging(recorded())
    watch = DeviceWatch(Nvml(library), 0.01, Ledger())
    watch.start()
    assert watch.latest.blind is not None
    watch.stop(0.05)
    release.set()
    wait_until(lambda: not watch._thread.is_alive())
