"""What a window adds to the exposed metrics: one place that joins the contract's fields with the catalogue's rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.window import CAPTURE_OUTCOMES, FALLBACK_REASONS, Dispatch, Timing, Window, Workload

MODES: Final = ("full", "piecewise", "eager")
MAX_LABEL: Final = 253
_ERROR_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
# Classic bucket bounds are 2**n nanoseconds: every schema-3 bucket lies wholly on one side, so the conversion is exact.
# (first, last) exponent by metric: where that time is in practice, 1 us = 2**10.
HISTOGRAMS: Final[Mapping[str, tuple[Callable[[Timing], Histogram | None], int, int]]] = {
    "cudagraph_replay_seconds": (lambda t: t.replay, 15, 31),
    "cudagraph_replay_gap_seconds": (lambda t: t.replay_gap, 10, 26),
    "cudagraph_launch_gap_seconds": (lambda t: t.launch_gap, 9, 24),
    "cudagraph_step_seconds": (lambda t: t.steps, 18, 34),
    "cudagraph_capture_seconds": (lambda t: t.capture, 22, 38),
}

# Sizes are counted by upper bounds 2**0 .. 2**10, which every engine's ladder of sizes has among its steps.
SIZES: Final[Mapping[str, Callable[[Dispatch], Mapping[int, int] | None]]] = {
    "cudagraph_batch_size": lambda d: d.batch_sizes,
    "cudagraph_eager_batch_size": lambda d: d.eager_batch_sizes,
}
LARGEST_SIZE_EXPONENT: Final = 10


def label_values(workload: Workload) -> tuple[str, ...]:
    """Values of WORKLOAD_LABELS, in their order; missing ones are empty, as Prometheus reads them."""
    values = (
        workload.namespace,
        workload.pod,
        workload.container,
        workload.engine,
        workload.model_name,
        workload.component,
        workload.rank,
        workload.gpu_index,
        workload.gpu_uuid,
        workload.phase,
    )
    return tuple("" if v is None else str(v)[:MAX_LABEL] for v in values)


def counts(window: Window) -> Iterator[tuple[str, str, int]]:
    """What a window adds to counters: metric, its own label's value (empty where it has none), amount."""
    dispatch = window.dispatch
    yield from _by_label("cudagraph_steps_total", dispatch.steps, MODES)
    yield from _by_label("cudagraph_fallbacks_total", dispatch.fallbacks, FALLBACK_REASONS)
    yield from _by_label("cudagraph_captures_total", dispatch.captures, CAPTURE_OUTCOMES)
    for error, count in (dispatch.failed_calls or {}).items():
        yield "cudagraph_failed_calls_total", error if _ERROR_NAME.fullmatch(error) else "other", count
    for name, value in (
        ("cudagraph_replays_total", dispatch.replays),
        ("cudagraph_instantiations_total", dispatch.instantiations),
        ("cudagraph_real_tokens_total", dispatch.real_tokens),
        ("cudagraph_padded_tokens_total", dispatch.padded_tokens),
    ):
        if value is not None:
            yield name, "", value


def gauges(window: Window) -> dict[str, float]:
    """What a window says of now, by metric; what it does not know is absent."""
    traced = window.traced
    values = {
        "cudagraph_live_graphs": window.dispatch.live_graphs,
        "cudagraph_pool_bytes": window.memory.pool_bytes,
        "cudagraph_kernel_coverage_ratio": traced.coverage if traced else None,
        "cudagraph_device_busy_ratio": traced.busy_ratio if traced else None,
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def probe_costs(window: Window) -> Iterator[tuple[str, float]]:
    """What watching cost the watched process, by metric."""
    if window.cost is not None:
        yield "replaywatch_probe_hook_seconds_total", window.cost.hook_ns * 1e-9
        yield "replaywatch_probe_frames_dropped_total", window.cost.frames_dropped
        yield "replaywatch_probe_errors_total", window.cost.errors
        yield "replaywatch_probe_traced_seconds_total", window.cost.traced_ns * 1e-9


def _by_label(name: str, values: Mapping[str, int] | None, known: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    for label, count in (values or {}).items():
        yield name, label if label in known else "other", count
