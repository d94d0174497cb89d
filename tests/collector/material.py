"""Plausible windows of a small fleet, made from a seed: what the collector's tests and pictures are fed with."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Dispatch, GraphMemory, Timing, TracedWork, Window, Workload
from replaywatch.contract.wire import Batch, encode

SECOND = 10**9
MS = 10**6
LADDER = (1, 2, 4, 8, 16, 24, 32)
PRINT = Fingerprint(
    gpu_model="NVIDIA H200",
    driver="580.65",
    cuda="13.0",
    torch="2.11.0",
    engine="vllm",
    engine_version="0.25.1",
    model_name="llama-1b",
    host_cpu="Xeon Platinum 8480",
    python="3.12",
)
GOOD = EngineConfig(
    engine="vllm",
    requested_mode="FULL_AND_PIECEWISE",
    resolved_mode="FULL_AND_PIECEWISE",
    graphs_enabled=True,
    capture_sizes=LADDER,
    capture_unit="sequences",
    max_batch_size=32,
)
OFF = replace(
    GOOD,
    resolved_mode="NONE",
    graphs_enabled=False,
    enforced_by="--enforce-eager",
    capture_sizes=None,
    mode_reason="enforce_eager was set",
)
SHORT = replace(GOOD, max_batch_size=256)


def workload(name: str, **fields: Any) -> Workload:
    """A pod's workload."""
    given = {
        "node": "gpu-01",
        "namespace": "serving",
        "container": "server",
        "pid": 4242,
        "engine": "vllm",
        "model_name": "llama-1b",
        "phase": "decode",
        "gpu_index": 0,
        "gpu_uuid": f"GPU-{name}",
        **fields,
    }
    return Workload(pod=name, **given)


def times(rng: random.Random, mean_ns: float, count: int) -> Histogram:
    """A histogram of some durations around a mean."""
    builder = HistogramBuilder()
    for start in range(0, count, 25):
        builder.add(int(rng.lognormvariate(0, 0.06) * mean_ns), min(25, count - start))
    return builder.build()


def healthy_window(start_ns: int, rng: random.Random, who: Workload, config: EngineConfig = GOOD) -> Window:
    """Five seconds of full replays at 3.3 ms a step."""
    steps = 1500
    sizes = {1: 200, 4: 500, 8: 600, 16: 200}
    return Window(
        workload=who,
        start_ns=start_ns,
        end_ns=start_ns + 5 * SECOND,
        origin="probe",
        fingerprint_id=PRINT.id,
        config_id=config.id,
        dispatch=Dispatch(
            steps={"full": steps - 6, "piecewise": 6, "eager": 0},
            replays=steps,
            batch_sizes=sizes,
            eager_batch_sizes={},
            real_tokens=11000,
            padded_tokens=12000,
            live_graphs=14,
        ),
        timing=Timing(step_period=times(rng, 3.3 * MS, steps), replay=times(rng, 2.9 * MS, 30)),
        traced=traced(True, 3.3, 2.9),
        memory=GraphMemory(pool_bytes=268435456),
    )


def eager_window(start_ns: int, rng: random.Random, who: Workload, config: EngineConfig = OFF) -> Window:
    """Five seconds of a service whose graphs are off: 12 ms a step, the device busy a fifth of the time."""
    return Window(
        workload=who,
        start_ns=start_ns,
        end_ns=start_ns + 5 * SECOND,
        origin="probe",
        fingerprint_id=PRINT.id,
        config_id=config.id,
        dispatch=Dispatch(
            steps={"full": 0, "piecewise": 0, "eager": 416},
            fallbacks={"forced_eager": 416},
            batch_sizes={4: 100, 8: 316},
            eager_batch_sizes={4: 100, 8: 316},
        ),
        timing=Timing(step_period=times(rng, 12 * MS, 416)),
        traced=traced(False, 12.0, 2.4),
    )


def overflow_window(start_ns: int, rng: random.Random, who: Workload, share: float) -> Window:
    """Five seconds with a share of steps whose batch is past the ceiling of 32, at 15.2 against 3.4 ms."""
    steps = int(5000 / (3.4 * (1 - share) + 15.2 * share))
    over = int(steps * share)
    sizes = {
        8: (steps - over) // 4,
        16: (steps - over) // 2,
        32: steps - over - (steps - over) // 4 - (steps - over) // 2,
        40: over // 3,
        48: over - over // 3,
    }
    full, eager = times(rng, 3.4 * MS, steps - over), times(rng, 15.2 * MS, over)
    return Window(
        workload=who,
        start_ns=start_ns,
        end_ns=start_ns + 5 * SECOND,
        origin="probe",
        fingerprint_id=PRINT.id,
        config_id=SHORT.id,
        dispatch=Dispatch(
            steps={"full": steps - over, "piecewise": 0, "eager": over},
            fallbacks={"above_ceiling": over},
            batch_sizes={k: v for k, v in sizes.items() if v},
            live_graphs=7,
            eager_batch_sizes={k: v for k, v in sizes.items() if v and k > 32},
        ),
        timing=Timing(step_period=full.merge(eager), step_by_mode={"full": full, "eager": eager}),
        memory=GraphMemory(pool_bytes=188743680),
    )


def blind_window(start_ns: int, who: Workload) -> Window:
    """Five seconds of a process of which only its existence is known."""
    return Window(
        workload=who,
        start_ns=start_ns,
        end_ns=start_ns + 5 * SECOND,
        origin="probe",
        blind=(BlindSpot("kernels", "another profiler is attached; kernels are not traced meanwhile"),),
    )


def traced(is_replayed: bool, step_ms: float, busy_ms: float, steps: int = 8, kernels: int = 900) -> TracedWork:
    """A traced stretch of some clean steps."""
    total, busy, span = steps * kernels, int(steps * busy_ms * MS), int(steps * step_ms * MS)
    return TracedWork(
        method="cupti",
        steps=steps,
        span_ns=span,
        span_sq_ns2=steps * (step_ms * MS) ** 2,
        busy_ns=busy,
        kernel_ns=busy,
        graph_kernels=total if is_replayed else 0,
        eager_kernels=0 if is_replayed else total,
        graph_kernel_ns=busy if is_replayed else 0,
        eager_kernel_ns=0 if is_replayed else busy,
        chain_kernels=total,
        launches=0 if is_replayed else total,
        graph_launches=steps if is_replayed else 0,
        total_span_ns=span,
        total_busy_ns=busy,
        total_kernels=total,
        total_graph_kernels=total if is_replayed else 0,
    )


def fleet(end_ns: int, minutes: float) -> Iterator[list[Window]]:
    """Windows of six workloads that end at a time, one list every five seconds."""
    rng = random.Random(20)
    count = int(minutes * 12)
    chat, search = workload("chat-7d9f4-x2kqp"), workload("search-5c6b8-m4z7t", node="gpu-02", gpu_index=1)
    agent = workload("agents-66f9d-qq8wn", node="gpu-02", gpu_index=2, model_name="qwen-3b")
    audit = workload("audit-0", node="gpu-03", engine="transformers", model_name="encoder", phase=None)
    fresh = workload("canary-1b2c3-pp0aa", node="gpu-03", gpu_index=3)
    silent = workload("batch-7f7f7-k9k9k", node="gpu-04", gpu_index=0, engine="sglang")
    for i in range(count):
        start = end_ns - (count - i) * 5 * SECOND
        done = i / count
        windows = [healthy_window(start, rng, chat), eager_window(start, rng, search)]
        windows.append(overflow_window(start, rng, agent, 0.0 if done < 0.3 else min(0.72, (done - 0.3) * 1.6)))
        windows.append(blind_window(start, audit))
        if i == count - 1:
            windows.append(
                replace(
                    healthy_window(start, rng, fresh),
                    traced=None,
                    dispatch=Dispatch(steps={"full": 2}),
                    timing=Timing(),
                )
            )
        if done < 0.6:
            windows.append(healthy_window(start, rng, silent))
        yield windows


def batch(windows: list[Window], key: str, sent_ns: int = 0) -> Batch:
    """A batch with the snapshots that the windows point to."""
    configs = {c.id: c for c in (GOOD, OFF, SHORT)}
    return Batch(key=key, sent_ns=sent_ns, windows=tuple(windows), fingerprints={PRINT.id: PRINT}, configs=configs)


def body(windows: list[Window], key: str) -> bytes:
    """A batch as an agent sends it."""
    return gzip.compress(encode(batch(windows, key)))


HEADERS: Mapping[str, str] = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
