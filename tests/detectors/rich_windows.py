"""Hypothesis strategies for evidence with everything in it: all timings, device, traced work, configuration, peers."""

from __future__ import annotations

from functools import reduce

from hypothesis import strategies as st

from contract.windows import COUNT, HISTOGRAM
from replaywatch.contract.device import THROTTLE_REASONS, DeviceState
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import (
    FALLBACK_REASONS,
    Dispatch,
    GraphMemory,
    Observation,
    Timing,
    TracedWork,
    Window,
    Workload,
)
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.figures import figures_of
from replaywatch.detectors.peers import COMPARED, CohortSummary, Spread
from replaywatch.detectors.sudden_state import SuddenState, advance

MAYBE_TIMES = st.none() | HISTOGRAM
SIZE = st.integers(0, 4096)
STEPS = st.dictionaries(st.sampled_from(["full", "piecewise", "eager"]), COUNT)
DEVICE = st.builds(
    DeviceState,
    sm_clock_hz=st.none() | COUNT,
    sm_clock_max_hz=st.none() | COUNT,
    throttle_reasons=st.none() | st.lists(st.sampled_from(THROTTLE_REASONS), max_size=3).map(tuple),
    processes=st.none() | st.integers(0, 9),
    mps_processes=st.none() | st.integers(0, 9),
    temperature_celsius=st.none() | st.integers(-50, 200),
)
WORK = st.builds(
    TracedWork,
    method=st.sampled_from(["kineto", "roctracer", "nsys", "cupti"]),
    steps=st.integers(0, 9),
    span_ns=COUNT,
    busy_ns=COUNT,
    graph_kernels=COUNT,
    eager_kernels=COUNT,
    graph_launches=COUNT,
    launches=COUNT,
    replay_gap_ns=COUNT,
    input_copy_ns=COUNT,
    total_span_ns=COUNT,
    total_busy_ns=COUNT,
    total_kernels=COUNT,
    total_graph_kernels=COUNT,
    gaps_are_evidence=st.booleans(),
)
RICH = st.builds(
    Window,
    workload=st.builds(Workload, pod=st.just("a"), phase=st.none() | st.sampled_from(["decode", "prefill"])),
    start_ns=st.integers(0, 1 << 40),
    end_ns=st.integers(0, 1 << 41),
    origin=st.sampled_from(["probe", "trace", "log", "metrics"]),
    fingerprint_id=st.none() | st.sampled_from(["f1", "f2"]),
    dispatch=st.builds(
        Dispatch,
        steps=st.none() | STEPS,
        fallbacks=st.none() | st.dictionaries(st.sampled_from(FALLBACK_REASONS), COUNT, max_size=4),
        batch_sizes=st.none() | st.dictionaries(SIZE, COUNT, max_size=5),
        eager_batch_sizes=st.none() | st.dictionaries(SIZE, COUNT, max_size=5),
        real_tokens=st.none() | COUNT,
        padded_tokens=st.none() | COUNT,
        replays=st.none() | COUNT,
        captures=st.none() | st.dictionaries(st.sampled_from(["ok", "failed", "throwaway"]), COUNT),
        live_graphs=st.none() | COUNT,
        graph_nodes=st.none() | COUNT,
    ),
    timing=st.builds(
        Timing,
        replay=MAYBE_TIMES,
        replay_gap=MAYBE_TIMES,
        step_period=MAYBE_TIMES,
        step_by_mode=st.none() | st.dictionaries(st.sampled_from(["full", "piecewise", "eager"]), HISTOGRAM),
        capture=MAYBE_TIMES,
        graph_launch_call=MAYBE_TIMES,
        host_plan=MAYBE_TIMES,
        between_forwards=MAYBE_TIMES,
    ),
    traced=st.none() | WORK,
    memory=st.builds(GraphMemory, pool_bytes=st.none() | COUNT, estimated_bytes=st.none() | COUNT),
    observations=st.lists(st.builds(Observation, st.just("process_restarted"), st.just("x")), max_size=2).map(tuple),
    device=st.none() | DEVICE,
)
CONFIG = st.builds(
    EngineConfig,
    engine=st.sampled_from(["vllm", "sglang", "trtllm", "unknown"]),
    graphs_enabled=st.none() | st.booleans(),
    capture_sizes=st.none() | st.lists(st.integers(1, 512), min_size=1, max_size=6).map(tuple),
    max_batch_size=st.none() | st.integers(1, 4096),
    padding=st.none() | st.booleans(),
)
PRINT = st.builds(Fingerprint, gpu_model=st.just("H200"), driver=st.none() | st.sampled_from(["580", "590"]))
FLOAT = st.floats(0, 1e12)
SPREAD = st.builds(Spread, st.integers(5, 2000), FLOAT, FLOAT)
PEERS = st.builds(
    CohortSummary,
    n=st.integers(0, 2000),
    spreads=st.dictionaries(st.sampled_from(list(COMPARED)), SPREAD),
    load=st.none() | FLOAT,
    slope_us=st.none() | FLOAT,
    elsewhere=st.dictionaries(st.sampled_from(list(COMPARED)), FLOAT),
)


@st.composite
def rich_evidence(draw: st.DrawFn) -> Evidence:
    """Evidence from some windows, followed one by one."""
    windows = sorted(draw(st.lists(RICH, min_size=1, max_size=5)), key=lambda w: w.end_ns)
    last = windows[-1]
    figures_of(last)
    return Evidence(
        workload=last.workload,
        recent=last,
        lifetime=last,
        config=draw(st.none() | CONFIG),
        fingerprint=draw(st.none() | PRINT),
        is_recording=draw(st.booleans()),
        peers=draw(st.none() | PEERS),
        sudden=reduce(advance, windows, SuddenState()),
        previous_fingerprint=draw(st.none() | PRINT),
    )
