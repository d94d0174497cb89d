"""Evidence built by hand, for tests that need one exact situation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Dispatch, Observation, Timing, TracedWork, Window, Workload
from replaywatch.detectors.evidence import Evidence

MS = 1_000_000
SECOND = 1_000_000_000


def eager_work(*, steps: int = 8, step_ms: float = 12.0, busy_ms: float = 2.4, kernels: int = 900) -> TracedWork:
    """A traced eager decode step in the manner of M13: host-bound, three host events a kernel."""
    return TracedWork(
        has_cpu_events=True,
        steps=steps,
        span_ns=int(steps * step_ms * MS),
        span_sq_ns2=steps * (step_ms * MS) ** 2,
        busy_ns=int(steps * busy_ms * MS),
        kernel_ns=int(steps * busy_ms * MS),
        eager_kernels=steps * kernels,
        eager_kernel_ns=int(steps * busy_ms * MS),
        chain_kernels=steps * kernels,
        launches=steps * kernels,
        runtime_calls=steps * kernels,
        total_span_ns=int(steps * step_ms * MS),
        total_busy_ns=int(steps * busy_ms * MS),
        total_kernels=steps * kernels,
    )


def replayed_work(*, steps: int = 8, step_ms: float = 3.3, busy_ms: float = 2.4, kernels: int = 900) -> TracedWork:
    """The same work as one replay a step."""
    eager = eager_work(steps=steps, step_ms=step_ms, busy_ms=busy_ms, kernels=kernels)
    return replace(
        eager,
        graph_kernels=eager.eager_kernels,
        eager_kernels=0,
        graph_kernel_ns=eager.eager_kernel_ns,
        eager_kernel_ns=0,
        graph_launches=steps,
        launches=0,
        runtime_calls=steps,
        total_graph_kernels=eager.total_kernels,
    )


def window(*, seconds: float = 60.0, observed: tuple[Observation, ...] = (), **fields: Any) -> Window:
    """A window of a minute; `dispatch`, `timing`, `traced`, ... as given."""
    start = 1_000 * SECOND
    defaults: dict[str, Any] = {"dispatch": Dispatch(), "timing": Timing(), "traced": None, "origin": "probe"}
    workload = fields.pop("workload", Workload(pod="pod-a", engine="vllm"))
    return Window(
        workload=workload,
        start_ns=start,
        end_ns=start + int(seconds * SECOND),
        observations=observed,
        **{**defaults, **fields},
    )


def evidence(recent: Window, *, config: EngineConfig | None = None, is_recording: bool = False) -> Evidence:
    """Evidence whose lifetime is its recent window."""
    return Evidence(workload=recent.workload, recent=recent, lifetime=recent, config=config, is_recording=is_recording)
