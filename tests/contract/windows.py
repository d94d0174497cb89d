"""Hypothesis strategies for windows, built from the types themselves so that new fields are covered at once."""

from __future__ import annotations

from hypothesis import strategies as st

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.window import Dispatch, GraphMemory, Observation, Timing, TracedWork, Window, Workload

TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)
COUNT = st.integers(0, 1 << 40)
HISTOGRAM = st.lists(st.integers(0, 1 << 40), max_size=8).map(Histogram.of)
BY_NAME = st.dictionaries(TEXT, COUNT, max_size=4)
BY_SIZE = st.dictionaries(st.integers(0, 4096), COUNT, max_size=4)

DISPATCH = st.builds(
    Dispatch,
    steps=st.none() | BY_NAME,
    fallbacks=st.none() | BY_NAME,
    batch_sizes=st.none() | BY_SIZE,
    eager_batch_sizes=st.none() | BY_SIZE,
    real_tokens=st.none() | COUNT,
    padded_tokens=st.none() | COUNT,
    context_tokens=st.none() | COUNT,
    context_sequences=st.none() | COUNT,
    replays=st.none() | COUNT,
    captures=st.none() | BY_NAME,
    resets=st.none() | COUNT,
    replays_by_owner=st.none() | BY_NAME,
    instantiations_by_owner=st.none() | BY_NAME,
    destroys_by_owner=st.none() | BY_NAME,
    live_graphs=st.none() | COUNT,
)
TIMING = st.builds(
    Timing,
    replay=st.none() | HISTOGRAM,
    step_period=st.none() | HISTOGRAM,
    step_by_mode=st.none() | st.dictionaries(st.sampled_from(["full", "piecewise", "eager"]), HISTOGRAM),
)
TRACED = st.builds(
    TracedWork, steps=COUNT, span_ns=COUNT, busy_ns=COUNT, graph_kernels=COUNT, host_fixed_ns=st.none() | COUNT
)
WINDOW = st.builds(
    Window,
    workload=st.builds(Workload, pod=st.none() | TEXT, rank=st.none() | st.integers(0, 8), engine=st.just("vllm")),
    start_ns=COUNT,
    end_ns=COUNT,
    origin=st.sampled_from(["probe", "trace", "log", "metrics"]),
    dispatch=DISPATCH,
    timing=TIMING,
    traced=st.none() | TRACED,
    memory=st.builds(GraphMemory, pool_bytes=st.none() | COUNT),
    observations=st.lists(st.builds(Observation, st.just("error"), TEXT, st.integers(1, 9)), max_size=3).map(tuple),
)
