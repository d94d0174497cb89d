"""Live windows of a serving process, made from a seed: a load that swings, steps that follow it, and faults in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import cos, pi

from replaywatch.contract.device import DeviceState
from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.window import Dispatch, GraphMemory, Timing, Window, Workload

MS = 1_000_000
SECOND = 1_000_000_000
LENGTH_S = 5.0
DEVICE = DeviceState(
    sm_clock_hz=1_980_000_000, sm_clock_max_hz=1_980_000_000, throttle_reasons=(), processes=1, mps_processes=0
)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What one window is made from. Times in milliseconds and microseconds of one step at the given batch."""

    batch: float
    step_ms: float
    replay_ms: float
    gap_us: float = 6.0
    launch_us: float = 6.0
    eager_ratio: float = 0.0
    pause_ratio: float = 0.05
    reason: str = "no_matching_graph"
    captures: int = 0
    pool_bytes: int = 256 << 20
    config_id: str = "c1"
    fingerprint_id: str = "f1"
    device: DeviceState = DEVICE
    length_s: float = LENGTH_S


def serving(batch: float, rng: random.Random, noise: float = 0.02) -> Moment:
    """A healthy moment at a batch: replays that grow with it, a little host time around them (after M15)."""
    replay_ms = (2.30 + 0.038 * batch) * rng.lognormvariate(0, noise)
    return Moment(batch=batch, replay_ms=replay_ms, step_ms=replay_ms + 0.35 * rng.lognormvariate(0, 0.1))


def swing(second: float, rng: random.Random) -> float:
    """Batch of a service over a day: a wave, with bursts and lulls on it. Shape: 1 to 64."""
    wave = 20 - 18 * cos(2 * pi * second / 86_400)
    return min(64.0, max(1.0, wave * rng.lognormvariate(0, 0.35)))


def window_of(moment: Moment, end_ns: int, rng: random.Random, who: Workload) -> Window:
    """The window of a moment that ends at a time."""
    stepping_ns = (1 - moment.pause_ratio) * moment.length_s * SECOND
    steps = max(1, int(stepping_ns / (moment.step_ms * MS)))
    eager = round(steps * moment.eager_ratio)
    sizes = _sizes(moment.batch, steps, rng)
    tokens = sum(size * n for size, n in sizes.items())
    return Window(
        workload=who,
        start_ns=end_ns - int(moment.length_s * SECOND),
        end_ns=end_ns,
        origin="probe",
        fingerprint_id=moment.fingerprint_id,
        config_id=moment.config_id,
        dispatch=Dispatch(
            steps={"full": steps - eager, "eager": eager},
            fallbacks={moment.reason: eager} if eager else {},
            batch_sizes=sizes,
            real_tokens=tokens,
            padded_tokens=round(1.1 * tokens),
            replays=steps - eager,
            captures={"ok": moment.captures},
        ),
        timing=Timing(
            step_period=_times(moment.step_ms * MS, steps, rng),
            replay=_times(moment.replay_ms * MS, max(1, (steps - eager) // 64), rng),
            replay_gap=_times(moment.gap_us * 1000, max(1, steps // 64), rng),
            graph_launch_call=_times(moment.launch_us * 1000, max(1, steps - eager), rng),
        ),
        memory=GraphMemory(pool_bytes=moment.pool_bytes),
        device=moment.device,
    )


def _sizes(batch: float, steps: int, rng: random.Random) -> dict[int, int]:
    """Batch sizes around a mean; a few sizes a window."""
    sizes: dict[int, int] = {}
    left = steps
    for _ in range(3):
        size = max(1, round(batch * rng.lognormvariate(0, 0.1)))
        n = left // 3
        sizes[size] = sizes.get(size, 0) + n
        left -= n
    size = max(1, round(batch))
    sizes[size] = sizes.get(size, 0) + left
    return sizes


def _times(mean_ns: float, count: int, rng: random.Random) -> Histogram:
    builder = HistogramBuilder()
    part = max(1, count // 12)
    for start in range(0, count, part):
        builder.add(int(mean_ns * rng.lognormvariate(0, 0.04)), min(part, count - start))
    return builder.build()


Fault = Callable[[Moment], Moment]


def stream(
    seconds: float,
    seed: int = 1,
    *,
    faults: dict[float, Fault] | None = None,
    batch: Callable[[float, random.Random], float] = swing,
    start_s: float = 0.0,
    noise: float = 0.02,
    who: Workload | None = None,
) -> Iterator[Window]:
    """Windows over some seconds. Shape: `faults` by the second from which each holds; the last begun counts."""
    rng = random.Random(seed)
    who = who or Workload(pod=f"pod-{seed}", engine="vllm", phase="decode")
    end_s, load = start_s, batch(start_s, rng)
    while end_s < start_s + seconds:
        load += 0.3 * (batch(end_s, rng) - load)
        moment = serving(load, rng, noise)
        active = [f for at, f in sorted((faults or {}).items()) if end_s - start_s >= at]
        if active:
            moment = active[-1](moment)
        end_s += moment.length_s
        yield window_of(moment, int((1_000_000 + end_s) * SECOND), rng, who)


def slower(factor: float) -> Fault:
    """The device runs slower."""
    return lambda m: replace(m, step_ms=m.step_ms * factor, replay_ms=m.replay_ms * factor)
