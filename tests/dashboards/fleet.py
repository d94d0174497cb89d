"""A fleet with one workload for each family of faults: what Prometheus, alerts and panels are tried on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from collector.material import (
    GOOD,
    OFF,
    PRINT,
    SECOND,
    SHORT,
    blind_window,
    eager_window,
    healthy_window,
    overflow_window,
    times,
    workload,
)
from detectors.live import Moment, serving, window_of
from replaywatch.contract.device import DeviceState
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.window import (
    Dispatch,
    Observation,
    ProbeCost,
    Timing,
    Window,
    Workload,
)
from replaywatch.contract.wire import Batch, encode

MS = 1_000_000
COST = ProbeCost(hook_ns=4_000_000, hook_calls=1500, traced_windows=1, traced_ns=20_000_000, frames_sent=1)
PEERS = 6
# A cohort of their own: peers are compared among those with one fingerprint.
PEER_PRINT = replace(PRINT, model_name="peers-1b")
CALM_SECONDS = 3600
SHARED = DeviceState(
    sm_clock_hz=1_980_000_000, sm_clock_max_hz=1_980_000_000, throttle_reasons=(), processes=2, mps_processes=0
)
# Which workload shows which family, and its alert.
EXPECTED = {
    "off": ("off-0", "CudaGraphDisabled"),
    "coverage": ("overflow-0", "CudaGraphOverflow"),
    "replay": ("harmful-0", "CudaGraphHarmful"),
    "capture": ("capture-0", "CudaGraphCaptureFailed"),
    "faults": ("failing-0", "CudaGraphFailingCalls"),
    "device": ("peer-1", "CudaGraphContention"),
    "peers": ("peer-0", "CudaGraphOddOneOut"),
    "sudden": ("sudden-0", "CudaGraphSudden"),
    "sight": ("contradiction-0", "CudaGraphContradiction"),
}


def who(name: str, **fields: object) -> Workload:
    """A pod on a device of its own, on node gpu-01."""
    return replace(workload(name), **fields)  # type: ignore[arg-type]


def fleet(end_ns: int, minutes: float, seed: int = 7) -> Iterator[list[Window]]:
    """Windows of five seconds up to a time, one list for each moment."""
    rng = random.Random(seed)
    for number in range(int(minutes * 12), 0, -1):
        yield [replace(w, cost=COST) for w in moment(end_ns - number * 5 * SECOND, rng)]


def moment(start_ns: int, rng: random.Random) -> list[Window]:
    """One window of each workload."""
    windows = [
        healthy_window(start_ns, rng, who("healthy-0")),
        eager_window(start_ns, rng, who("off-0")),
        overflow_window(start_ns, rng, who("overflow-0", model_name="overflow-1b"), 0.7),
        blind_window(start_ns, who("blind-0")),
        _harmful(healthy_window(start_ns, rng, who("harmful-0"))),
        _capturing(healthy_window(start_ns, rng, who("capture-0"))),
        _failing(healthy_window(start_ns, rng, who("failing-0"))),
        _contradicting(healthy_window(start_ns, rng, who("contradiction-0"))),
        window_of(_lost(serving(16, rng)), start_ns + 5 * SECOND, rng, who("sudden-0")),
    ]
    windows += [_peer(start_ns, rng, n) for n in range(PEERS)]
    return windows


def calm_before(end_ns: int, seed: int = 5) -> Iterator[Window]:
    """An hour in which the workload that will lose its graphs is well."""
    rng = random.Random(seed)
    for number in range(CALM_SECONDS // 5, 0, -1):
        yield window_of(serving(16, rng), end_ns - number * 5 * SECOND, rng, who("sudden-0"))


def _lost(moment_: Moment) -> Moment:
    return replace(moment_, step_ms=moment_.step_ms * 3.5, eager_ratio=1.0, reason="no_matching_graph")


def frames(windows: list[Window], key: str) -> Iterator[bytes]:
    """Datagrams as a probe sends them, small enough for a socket."""
    for number, window in enumerate(windows):
        configs = {c.id: c for c in (GOOD, OFF, SHORT) if c.id == window.config_id}
        prints = {p.id: p for p in (PRINT, PEER_PRINT) if p.id == window.fingerprint_id}
        yield encode(
            Batch(key=f"{key}-{number}", sent_ns=window.end_ns, windows=(window,), fingerprints=prints, configs=configs)
        )


def _harmful(window: Window) -> Window:
    """Replays that take longer than the same steps without them."""
    dispatch = replace(window.dispatch, steps={"full": 900, "piecewise": 0, "eager": 300})
    slow, fast = Histogram.of([95 * MS // 10] * 900), Histogram.of([7 * MS] * 300)
    timing = replace(window.timing, step_by_mode={"full": slow, "eager": fast}, step_period=slow.merge(fast))
    return replace(window, dispatch=dispatch, timing=timing)


def _capturing(window: Window) -> Window:
    """Captures that fail while requests are served, and throw-away ones between."""
    dispatch = replace(window.dispatch, captures={"ok": 4, "failed": 2, "throwaway": 3}, instantiations=4)
    timing = replace(window.timing, capture=Histogram.of([400 * MS] * 6))
    seen = (Observation("capture_failed", "operation not permitted when stream is capturing"),)
    return replace(window, dispatch=dispatch, timing=timing, observations=seen)


def _failing(window: Window) -> Window:
    dispatch = replace(window.dispatch, failed_calls={"cudaErrorIllegalAddress": 2})
    return replace(window, dispatch=dispatch)


def _contradicting(window: Window) -> Window:
    seen = (Observation("witness_contradicts", "the engine counts 40 % of its decode passes without a graph"),)
    return replace(window, observations=seen)


def _peer(start_ns: int, rng: random.Random, number: int) -> Window:
    """Replicas at one load: the first runs eager, the second shares its device with somebody else."""
    steps, step_ms = 400, 11.0 if number == 0 else 3.3 * rng.lognormvariate(0, 0.02)
    replay_ms = 4.4 if number == 1 else 2.9 * rng.lognormvariate(0, 0.02)
    fallen = steps if number == 0 else 0
    return Window(
        workload=who(f"peer-{number}", model_name="peers-1b"),
        start_ns=start_ns,
        end_ns=start_ns + 5 * SECOND,
        origin="probe",
        fingerprint_id=PEER_PRINT.id,
        config_id=GOOD.id,
        dispatch=Dispatch(
            steps={"full": steps - fallen, "piecewise": 0, "eager": fallen},
            fallbacks={"no_matching_graph": fallen} if fallen else {},
            batch_sizes={8: steps},
            eager_batch_sizes={8: fallen} if fallen else {},
            replays=steps - fallen,
        ),
        timing=Timing(
            step_period=times(rng, step_ms * MS, steps),
            replay=times(rng, replay_ms * MS, 100),
            replay_gap=times(rng, 8000, 40),
            launch_gap=times(rng, 2500, 40),
        ),
        device=SHARED if number == 1 else None,
    )
