"""What stood around a window: configuration, versions, load, clocks, neighbours; and what of it changed in a moment."""

from __future__ import annotations

from typing import Final

from replaywatch.contract.record import record
from replaywatch.contract.verdict import Cause
from replaywatch.contract.window import Window
from replaywatch.detectors.device_clock import clock_ratio
from replaywatch.detectors.figures import Figures

LOAD_RATIO: Final = 1.5
CLOCK_RATIO: Final = 0.95
LAUNCH_RATIO: Final = 1.3
# Clocks below their maximum for these reasons are no fault of the device.
_BENIGN_THROTTLES: Final = ("idle", "application_clocks", "display_clock", "sync_boost")
_TELLING: Final = (
    "capture_failed",
    "out_of_memory",
    "inductor_rerecord",
    "dynamic_shapes",
    "graph_update_failed",
    "graph_call_failed",
    "process_restarted",
    "idle_rank_eager",
    "replay_stuck",
    "sizes_dropped",
)


@record(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What may explain a shift, as one window saw it; None where it did not."""

    config_id: str | None = None
    fingerprint_id: str | None = None
    load: float | None = None
    clock_ratio: float | None = None
    throttles: tuple[str, ...] | None = None
    processes: int | None = None
    launch_us: float | None = None
    captures: int | None = None
    reason: str | None = None
    observed: tuple[str, ...] = ()


def surroundings_of(window: Window, figures: Figures) -> Surroundings:
    """The surroundings of one window. Shape: `reason` is its most frequent fallback."""
    device, fallbacks = window.device, window.dispatch.fallbacks
    throttles = device.throttle_reasons if device is not None else None
    return Surroundings(
        config_id=window.config_id,
        fingerprint_id=window.fingerprint_id,
        load=figures.load,
        clock_ratio=clock_ratio(window),
        throttles=None if throttles is None else tuple(t for t in throttles if t not in _BENIGN_THROTTLES),
        processes=device.processes if device is not None else None,
        launch_us=figures.launch_us,
        captures=(window.dispatch.captures or {}).get("ok"),
        reason=max(fallbacks, key=lambda r: (fallbacks[r], r)) if fallbacks and any(fallbacks.values()) else None,
        observed=tuple(o.detail for o in window.observations if o.kind in _TELLING)[:4] if window.observations else (),
    )


def changes(before: Surroundings, after: Surroundings) -> tuple[Cause, ...]:
    """What changed when something shifted, as causes, likeliest first."""
    found = [
        *_identity(before, after),
        *_device(before, after),
        *_host(before, after),
        *(Cause(text, 0.85, "reported at that moment") for text in after.observed if text not in before.observed),
    ]
    if after.reason is not None and after.reason != before.reason:
        found.append(Cause(f"steps fall back: {after.reason.replace('_', ' ')}", 0.8, "fallbacks since then"))
    if (after.captures or 0) > (before.captures or 0):
        found.append(Cause(f"graphs are captured: {after.captures} in a window", 0.6, "captures since then"))
    return tuple(sorted(found, key=lambda c: -c.weight)[:5])


def _identity(before: Surroundings, after: Surroundings) -> list[Cause]:
    found = []
    if before.config_id and after.config_id and before.config_id != after.config_id:
        found.append(Cause("the engine's configuration changed", 0.9, f"{before.config_id} to {after.config_id}"))
    if before.fingerprint_id and after.fingerprint_id and before.fingerprint_id != after.fingerprint_id:
        told = f"{before.fingerprint_id} to {after.fingerprint_id}"
        found.append(Cause("software or device changed", 0.9, told))
    return found


def _device(before: Surroundings, after: Surroundings) -> list[Cause]:
    found = []
    if before.processes is not None and after.processes is not None and after.processes > before.processes:
        found.append(Cause("another process computes on the device", 0.85, f"{after.processes} processes, NVML"))
    new = [t for t in after.throttles or () if t not in (before.throttles or ())]
    slower = before.clock_ratio and after.clock_ratio and after.clock_ratio < CLOCK_RATIO * before.clock_ratio
    if slower or (new and before.throttles is not None):
        why = ", ".join(t.replace("_", " ") for t in new) or "no reason given"
        ratio = f" to {after.clock_ratio:.0%} of its maximum" if after.clock_ratio else ""
        found.append(Cause(f"the device's clock fell{ratio}", 0.85 if slower else 0.5, f"NVML: {why}"))
    return found


def _host(before: Surroundings, after: Surroundings) -> list[Cause]:
    found = []
    if before.launch_us and after.launch_us and after.launch_us > LAUNCH_RATIO * before.launch_us:
        told = f"{before.launch_us:.1f} to {after.launch_us:.1f} us a graph launch"
        found.append(Cause("the host became slower, or is kept busy", 0.7, told))
    if before.load and after.load:
        grown = after.load / before.load
        if grown >= LOAD_RATIO or grown <= 1 / LOAD_RATIO:
            found.append(Cause("the mix of batches changed", 0.3, f"load {before.load:.1f} to {after.load:.1f} a step"))
    return found
