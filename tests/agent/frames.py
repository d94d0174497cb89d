"""Frames as probes send them, and what tests wait with."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Dispatch, ProbeCost, Timing, TracedWork, Window, Workload
from replaywatch.contract.wire import Batch, encode

T0_NS = 1_790_000_000 * 10**9
CONFIG = EngineConfig(engine="vllm", resolved_mode="FULL_AND_PIECEWISE", capture_sizes=(1, 2, 4, 8))
FINGERPRINT = Fingerprint(torch="2.11.0", engine="vllm", engine_version="0.25.1")


def window(number: int = 0, **workload: Any) -> Window:
    """A window of 5 s: 90 full steps, 10 eager ones; `number` is its place in time."""
    who = {"pod": "pod-a", "engine": "vllm", "model_name": "m", "rank": 0, "phase": "decode", **workload}
    return Window(
        workload=Workload(**who),
        start_ns=T0_NS + number * 5 * 10**9,
        end_ns=T0_NS + (number + 1) * 5 * 10**9,
        origin="probe",
        fingerprint_id=FINGERPRINT.id,
        config_id=CONFIG.id,
        dispatch=Dispatch(
            steps={"full": 90, "eager": 10},
            fallbacks={"above_ceiling": 10},
            batch_sizes={4: 90, 48: 10},
            replays=90,
            captures={"ok": 1},
            live_graphs=8,
        ),
        timing=Timing(replay=Histogram.of([2_800_000] * 5), step_period=Histogram.of([3_000_000] * 100)),
        traced=TracedWork(total_kernels=1000, total_graph_kernels=900, total_span_ns=10**9, total_busy_ns=8 * 10**8),
        cost=ProbeCost(hook_ns=500_000, hook_calls=100, frames_dropped=0),
    )


def frame(key: str, *windows: Window) -> bytes:
    """A frame with its snapshots."""
    return encode(
        Batch(
            key=key,
            sent_ns=T0_NS,
            windows=windows or (window(),),
            fingerprints={FINGERPRINT.id: FINGERPRINT},
            configs={CONFIG.id: CONFIG},
        )
    )


def without_snapshots(number: int, **workload: Any) -> Window:
    """A window that points to nothing."""
    return replace(window(number, **workload), fingerprint_id=None, config_id=None)


class Probe:
    """A client of the agent's socket that waits where a real probe would drop, so that tests lose nothing to luck."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(10)
        self._socket.connect(str(path))

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_until(is_true: Callable[[], object], seconds: float = 30) -> None:
    """Poll until something holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.01)
