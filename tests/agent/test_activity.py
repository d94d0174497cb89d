"""How active a device is: from one reading to the next, and None wherever NVML does not tell."""

from __future__ import annotations

import pytest

from agent.nvml_stand_in import Counting, StandIn, recorded
from replaywatch.agent.devices import Nvml

MIG = ({"nvmlDeviceGetUUID": {"returned": "MIG-0"}, "nvmlDeviceGetComputeRunningProcesses": {"returned": []}},)


def ratios(nvml: Nvml) -> list[float | None]:
    return [device.state.active_ratio for device in nvml.read().devices]


def test_the_share_is_that_since_the_reading_before() -> None:
    library = Counting()
    nvml = Nvml(library)
    assert ratios(nvml) == [None]
    for share in (0.27, 0.99, 0.0):
        library.pass_time(15, share)
        assert ratios(nvml) == [pytest.approx(share)]
    assert library.alive == 2
    nvml.close()
    assert library.alive == 0


@pytest.mark.parametrize(
    "function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"]
)
def test_what_is_refused_is_not_told_and_costs_nothing_else(function: str) -> None:
    library = Counting(refused={function: "NVMLError_NoPermission"})
    nvml = Nvml(library)
    for _ in range(3):
        (device,) = nvml.read().devices
        assert device.state.active_ratio is None
        assert device.state.sm_clock_hz == 1_980_000_000
        library.pass_time(15, 0.5)
    assert library.alive == (2 if function == "nvmlGpmMetricsGet" else 0)


def test_a_device_or_a_library_without_counters_is_read_as_before() -> None:
    library = Counting()
    library.supported = 0
    for nvml in (Nvml(library), Nvml(StandIn(recorded()))):
        nvml.read()
        assert ratios(nvml) == [None]
        assert nvml.read().blind is None


def test_a_device_that_is_cut_up_is_not_told_as_a_whole() -> None:
    library = Counting(mig=MIG)
    nvml = Nvml(library)
    nvml.read()
    assert ratios(nvml) == [None, None]
    assert library.alive == 0


@pytest.mark.parametrize(("value", "status", "told"), [(float("nan"), 0, None), (-1.0, 0, None), (50.0, 3, None),
                                                       (104.0, 0, 1.0)])  # fmt: skip
def test_odd_answers_are_none_and_a_hair_too_much_is_all(value: float, status: int, told: float | None) -> None:
    library = Counting()
    nvml = Nvml(library)
    nvml.read()
    library.pass_time(15, 0.5)
    library.value, library.status = value, status
    assert ratios(nvml) == [told]


def test_a_sample_that_fails_once_is_begun_anew() -> None:
    library = Counting()
    nvml = Nvml(library)
    nvml.read()
    library._refused["nvmlGpmSampleGet"] = "NVMLError_GpuIsLost"
    assert ratios(nvml) == [None]
    assert library.alive == 0
    library._refused.clear()
    assert ratios(nvml) == [None]
    library.pass_time(15, 0.4)
    assert ratios(nvml) == [pytest.approx(0.4)]
