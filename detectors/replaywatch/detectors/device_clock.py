"""The clock that a device ran at."""

from __future__ import annotations

from typing import Final

from replaywatch.contract.window import Window

# A device below this share of its clock is slow for that reason.
SLOW_CLOCK_RATIO: Final = 0.85


def clock_ratio(window: Window) -> float | None:
    """Clock of the multiprocessors over its maximum; None where the device does not tell, or rests."""
    device = window.device
    if device is None or not device.sm_clock_hz or not device.sm_clock_max_hz:
        return None
    if device.throttle_reasons is not None and "idle" in device.throttle_reasons:
        return None
    return device.sm_clock_hz / device.sm_clock_max_hz
