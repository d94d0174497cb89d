"""`Figures`: the handful of numbers of a window that are compared with peers and followed over time."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, sqrt
from typing import Final

from replaywatch.contract.histogram import BUCKETS_PER_DOUBLING, Histogram, bucket_index
from replaywatch.contract.record import record
from replaywatch.contract.window import Dispatch, Timing, Window

# A step this many times longer than the usual one is a pause, of the host or for want of work, and no step.
PAUSE_STEPS: Final = 4.0
# Steps that are eager on purpose say nothing of graphs.
_BY_DESIGN: Final = ("prefill_by_design", "warm_up")
_MIDDLE: Final = sqrt(2.0 ** (-1 / BUCKETS_PER_DOUBLING))


@record(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one window says; None where it does not.

    Units: `_us` microseconds of a usual step, replay, gap (no pause) or launch call; ratios in 0..1; `load` tokens a
    step where tokens are counted, else sequences; `pause_ratio` the share of stepping time in pauses.
    """

    steps: int = 0
    load: float | None = None
    step_us: float | None = None
    pause_ratio: float | None = None
    replay_us: float | None = None
    gap_us: float | None = None
    launch_us: float | None = None
    unreplayed_ratio: float | None = None
    coverage: float | None = None
    captures_per_step: float | None = None
    pool_bytes: int | None = None


_last: tuple[Window, Figures] | None = None


def figures_of(window: Window) -> Figures:
    """The figures of one window, short or merged; several detectors ask for those of the same one."""
    global _last
    held = _last
    if held is not None and held[0] is window:
        return held[1]
    figures = _read(window)
    _last = (window, figures)
    return figures


def _read(window: Window) -> Figures:
    dispatch, timing, steps = window.dispatch, window.timing, window.steps or 0
    step_us, pause_ratio = usual_step(timing)
    captures = dispatch.captures.get("ok") if dispatch.captures is not None else None
    return Figures(
        steps=steps,
        load=_load(dispatch),
        step_us=step_us,
        pause_ratio=pause_ratio,
        replay_us=_mean_us(timing.replay),
        gap_us=_usual_gap(timing.replay_gap, step_us),
        launch_us=_mean_us(timing.graph_launch_call),
        unreplayed_ratio=_unreplayed(dispatch),
        coverage=window.traced.coverage if window.traced is not None else None,
        captures_per_step=captures / steps if captures is not None and steps else None,
        pool_bytes=window.memory.pool_bytes,
    )


def usual_step(timing: Timing) -> tuple[float | None, float | None]:
    """Mean microseconds of the steps that are no pauses, and the share of the time that pauses take."""
    periods = timing.steps
    return (None, None) if periods is None else usual_step_of(periods)


def spread_of(periods: Histogram) -> float:
    """Relative spread of the steps that are no pauses, without what the buckets' width adds."""
    edge = bucket_index(PAUSE_STEPS * (periods.quantile(0.5) or 1.0))
    kept = [(i, n) for i, n in periods.buckets.items() if i <= edge]
    total = sum(n for _, n in kept)
    if not total:
        return 0.0
    mean = sum(i * n for i, n in kept) / total
    variance = sum((i - mean) ** 2 * n for i, n in kept) / total - 1 / 12
    return sqrt(max(0.0, variance)) * log(2.0) / BUCKETS_PER_DOUBLING


def usual_step_of(periods: Histogram) -> tuple[float | None, float | None]:
    """The same for one histogram of steps."""
    if not periods.count or not periods.sum:
        return None, None
    usual_ns = periods.quantile(0.5) or 0.0
    edge_ns = PAUSE_STEPS * usual_ns
    long_n, long_ns = 0, 0.0
    for index, n in periods.buckets.items():
        middle_ns = _MIDDLE * 2.0 ** (index / BUCKETS_PER_DOUBLING)
        if middle_ns > edge_ns:
            long_n, long_ns = long_n + n, long_ns + n * middle_ns
    if not long_n:
        return periods.sum / periods.count / 1000, 0.0
    # The sum is exact and the length of pauses is not: what is left after them is trusted while they are few.
    rest_ns = periods.sum - long_ns
    usual_ns = rest_ns / (periods.count - long_n) if long_ns < 0.3 * periods.sum else usual_ns
    return usual_ns / 1000, min(1.0, long_ns / periods.sum)


def _mean_us(histogram: Histogram | None) -> float | None:
    return histogram.sum / histogram.count / 1000 if histogram is not None and histogram.count else None


def _usual_gap(gaps: Histogram | None, step_us: float | None) -> float | None:
    """Mean microseconds of the gaps that are no pauses: replays are timed one in many, and one may end a burst."""
    if gaps is None or not gaps.count or not step_us:
        return _mean_us(gaps)
    edge = bucket_index(1000 * PAUSE_STEPS * step_us)
    if max(gaps.buckets, default=edge) <= edge:
        return _mean_us(gaps)
    kept = {i: n for i, n in gaps.buckets.items() if i <= edge}
    total = gaps.zero + sum(kept.values())
    usual_ns = sum(n * _MIDDLE * 2.0 ** (i / BUCKETS_PER_DOUBLING) for i, n in kept.items())
    return usual_ns / total / 1000 if total else None


def _load(dispatch: Dispatch) -> float | None:
    steps = sum(dispatch.steps.values()) if dispatch.steps else 0
    if dispatch.real_tokens and steps:
        return dispatch.real_tokens / steps
    return mean_size(dispatch.batch_sizes)


def mean_size(sizes: Mapping[int, int] | None) -> float | None:
    """Mean number of sequences a step; None where no step was counted. Shape: steps by number of sequences."""
    total = sum(sizes.values()) if sizes else 0
    return sum(size * n for size, n in sizes.items()) / total if sizes and total else None


def eager_by_design(dispatch: Dispatch) -> int:
    """Steps that run eager and should: prefill where no graph is meant for it, and warm-up."""
    eager = (dispatch.steps or {}).get("eager", 0)
    fallbacks = dispatch.fallbacks or {}
    return min(eager, sum(fallbacks.get(reason, 0) for reason in _BY_DESIGN))


def _unreplayed(dispatch: Dispatch) -> float | None:
    """Share of steps that no graph held, steps that are eager by design left out."""
    steps: Mapping[str, int] = dispatch.steps or {}
    eager = steps.get("eager", 0)
    by_design = eager_by_design(dispatch)
    total = sum(steps.values()) - by_design
    return (eager - by_design) / total if total > 0 else None
