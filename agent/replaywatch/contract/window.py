"""`Window`: what one workload did on one device over a stretch of time.

Live probes, traces, logs and engine metrics all end as windows, and the same detectors judge them. A measurement that
was not made is None, never 0. Windows of one workload merge by addition (`merge_windows`), so that any horizon can be
put together from smaller ones. Times are integer nanoseconds, sizes bytes, ratios in 0..1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from itertools import chain
from typing import Final, Literal

from replaywatch.contract.device import DeviceState
from replaywatch.contract.histogram import Histogram, merge_histograms
from replaywatch.contract.merging import merge_all_records, merge_records, merge_values
from replaywatch.contract.record import record

Mode = Literal["full", "piecewise", "eager"]
Phase = Literal["decode", "prefill", "mixed", "train"]
Engine = Literal["vllm", "sglang", "trtllm", "tgi", "transformers", "torch", "llama.cpp", "unknown"]
Origin = Literal["probe", "trace", "log", "metrics"]
TraceMethod = Literal["kineto", "roctracer", "nsys", "cupti"]

# Why a step was not fully replayed. Closed, because it becomes a metric label; details go into `Observation.detail`.
FALLBACK_REASONS: Final = (
    "above_ceiling",
    "no_matching_graph",
    "mode_none",
    "forced_eager",
    "attention_backend",
    "cascade_attention",
    "lora",
    "speculative_width",
    "ranks_disagree",
    "prefill_by_design",
    "multimodal_input",
    "dynamic_shape",
    "mutated_input",
    "cpu_tensor",
    "incompatible_op",
    "rerecord_limit",
    "capture_failed",
    "warm_up",
    "other",
    "mode_piecewise",
)
CAPTURE_OUTCOMES: Final = ("ok", "failed", "throwaway")

# What a source saw beside numbers. Closed for the same reason.
OBSERVATION_KINDS: Final = (
    "mode_downgrade",
    "graphs_disabled",
    "capture_failed",
    "out_of_memory",
    "process_died",
    "inductor_skip",
    "inductor_rerecord",
    "dynamic_shapes",
    "graph_update_failed",
    "graph_call_failed",
    "replay_stuck",
    "sizes_dropped",
    "host_graph_break",
    "error",
    "process_restarted",
    "witness_contradicts",
    "idle_rank_eager",
)

_LAST: Final = {"merge": "last"}
_MAX: Final = {"merge": "max"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who: one model part of one process on one device, in one phase where the phase is known.

    `component` names a part with graphs of its own (target, draft, encoder, a pipeline stage). `name` is what a person
    calls it when nothing else is known, such as a file's name.
    """

    name: str | None = None
    node: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    pid: int | None = None
    rank: int | None = None
    engine: Engine = "unknown"
    model_name: str | None = None
    component: str | None = None
    phase: Phase | None = None
    gpu_index: int | None = None
    gpu_uuid: str | None = None

    @property
    def key(self) -> str:
        """Stable identity as text; equal workloads have equal keys."""
        return "/".join("" if v is None else str(v) for v in (getattr(self, f.name) for f in fields(self)))

    @property
    def label(self) -> str:
        """Short name for people: pod, model or file, then rank, component and phase."""
        head = self.pod or self.name or self.model_name or (f"pid {self.pid}" if self.pid is not None else "workload")
        parts = [f"rank {self.rank}" if self.rank is not None else None, self.component, self.phase]
        tail = " ".join(p for p in parts if p)
        return f"{head} ({tail})" if tail else head


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """How steps were dispatched, and what happened to graphs.

    Shape: `steps` by Mode; `fallbacks` by FALLBACK_REASONS; `batch_sizes` and `eager_batch_sizes` steps by number of
    sequences (at most 64 keys; sizes above 64 keys are rounded up to a power of two); `captures` by CAPTURE_OUTCOMES;
    `updates` and `failed_calls` by error name; what ends in `_by_owner` by the code that captured the graph (vllm,
    inductor, user, ...). `eager_batch_sizes` counts the steps that were not fully replayed, `resets` those of the
    `destroys` whose graph object lives on. `context_tokens` is the context of all sequences of some of the steps,
    `context_sequences` how many those were: their ratio is the usual context of a sequence.
    """

    steps: Mapping[str, int] | None = None
    fallbacks: Mapping[str, int] | None = None
    batch_sizes: Mapping[int, int] | None = None
    eager_batch_sizes: Mapping[int, int] | None = None
    real_tokens: int | None = None
    padded_tokens: int | None = None
    context_tokens: int | None = None
    context_sequences: int | None = None
    replays: int | None = None
    captures: Mapping[str, int] | None = None
    instantiations: int | None = None
    updates: Mapping[str, int] | None = None
    destroys: int | None = None
    resets: int | None = None
    failed_calls: Mapping[str, int] | None = None
    replays_by_owner: Mapping[str, int] | None = None
    instantiations_by_owner: Mapping[str, int] | None = None
    destroys_by_owner: Mapping[str, int] | None = None
    live_graphs: int | None = field(default=None, metadata=_LAST)
    unused_graphs: int | None = field(default=None, metadata=_LAST)
    graph_nodes: int | None = field(default=None, metadata=_LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations in nanoseconds, as histograms.

    `replay` GPU time of a graph replay; `replay_gap` GPU idle between a replay's end and the next work; `launch_gap`
    GPU idle between two kernels inside a step; `step_period` start to start; `step_by_mode` the same by Mode;
    `launch_call` host time inside a launch call; `graph_launch_call` host time inside a graph launch, of some of them;
    `host_plan` host time that a kernel library spends on planning a step before it can be launched; `between_forwards`
    time from the end of a step's forward to the dispatch of the next: the host's scheduling, sampling and outputs, and
    where the engine waits for the device there, that too.
    """

    replay: Histogram | None = None
    replay_gap: Histogram | None = None
    launch_gap: Histogram | None = None
    step_period: Histogram | None = None
    step_by_mode: Mapping[str, Histogram] | None = None
    capture: Histogram | None = None
    instantiate: Histogram | None = None
    launch_call: Histogram | None = None
    graph_launch_call: Histogram | None = None
    host_plan: Histogram | None = None
    between_forwards: Histogram | None = None

    @property
    def steps(self) -> Histogram | None:
        """Steps of all modes: `step_period`, or `step_by_mode` together where only an engine's hooks timed them."""
        return self.step_period or merge_histograms((self.step_by_mode or {}).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedWork:
    """Totals over the clean steps of a traced stretch; the input of the counterfactual estimate.

    Steps that are far longer than the others (idle stretches, captures) are left out and counted in `skipped_steps`.
    `span` is the sum of step periods, `busy` the union of kernel and copy intervals on the device, `kernel` the sum of
    kernel durations. `chain_kernels` is the number of kernels on the busiest stream, those that can only follow one
    another. `host_fixed` is host time that stays when everything is captured and that the device spends waiting: from
    the end of a wait for the device to the next launch. `host_stall` stays too, but may overlap with replays:
    stretches in which the host neither launches nor waits, far longer than usual, such as a wait for data. `cpu_ops`,
    `python_calls`, `runtime_calls` count recorded host events inside clean steps (of the runtime those that launch,
    copy or wait: queries are cheap): each cost the traced process time that it does not spend without a profiler
    (M23).

    The `calibrated_` fields were measured once, before the first stretch of the process, with kernels that do nothing:
    median host time of a kernel launch and of a graph launch, and the mean gap between two nodes of a graph.

    The `total_` fields cover the whole traced stretch, long idle stretches taken out of the span, and serve what people
    read (coverage, busy share); `gaps_are_evidence` is False where the tracer's stamps say nothing about gaps (HIP).

    Units: `_ns` nanoseconds, `_ns2` their square, `_bytes` bytes. `span_sq_ns2` gives the spread of step periods.
    """

    method: TraceMethod = field(default="kineto", metadata=_LAST)
    has_cpu_events: bool = field(default=False, metadata=_LAST)
    steps: int = 0
    skipped_steps: int = 0
    span_ns: int = 0
    span_sq_ns2: float = 0.0
    busy_ns: int = 0
    kernel_ns: int = 0
    graph_kernels: int = 0
    eager_kernels: int = 0
    graph_kernel_ns: int = 0
    eager_kernel_ns: int = 0
    chain_kernels: int = 0
    graph_busy_ns: int = 0
    launches: int = 0
    graph_launches: int = 0
    copies: int = 0
    copy_ns: int = 0
    input_copies: int = 0
    input_copy_ns: int = 0
    input_copy_bytes: int = 0
    replay_gap_ns: int = 0
    launch_call_ns: int = 0
    cpu_ops: int = 0
    python_calls: int = 0
    runtime_calls: int = 0
    host_fixed_ns: int | None = None
    host_stall_ns: int | None = None
    sync_ns: int | None = None
    in_graph_gap_ns: int | None = None
    in_graph_gaps: int | None = None
    unmatched_kernels: int = 0
    dropped_records: int = 0
    total_span_ns: int = 0
    total_busy_ns: int = 0
    total_kernels: int = 0
    total_graph_kernels: int = 0
    gaps_are_evidence: bool = field(default=True, metadata=_LAST)
    calibrated_launch_ns: int | None = field(default=None, metadata=_LAST)
    calibrated_graph_launch_ns: int | None = field(default=None, metadata=_LAST)
    calibrated_graph_gap_ns: int | None = field(default=None, metadata=_LAST)

    @property
    def kernels(self) -> int:
        """Kernels of the clean steps, inside and outside graphs."""
        return self.graph_kernels + self.eager_kernels

    @property
    def coverage(self) -> float | None:
        """Share of kernels that came from graphs; None when no kernel was seen."""
        return self.total_graph_kernels / self.total_kernels if self.total_kernels else None

    @property
    def busy_ratio(self) -> float | None:
        """Share of the traced time in which the device worked; None when nothing was traced."""
        return min(1.0, self.total_busy_ns / self.total_span_ns) if self.total_span_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphMemory:
    """Bytes held by graph pools. `estimated_bytes` is what the engine reserved for them beforehand."""

    pool_bytes: int | None = field(default=None, metadata=_LAST)
    estimated_bytes: int | None = field(default=None, metadata=_LAST)
    unused_bytes: int | None = field(default=None, metadata=_LAST)
    by_owner: Mapping[str, int] | None = field(default=None, metadata=_LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCost:
    """What watching cost the watched process: host time of hooks, traced windows, frames sent and dropped."""

    hook_ns: int = 0
    hook_calls: int = 0
    helper_cpu_ns: int = 0
    traced_windows: int = 0
    traced_ns: int = 0
    frames_sent: int = 0
    frames_dropped: int = 0
    throttled: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """A signal that could not be seen, and why, in one sentence."""

    signal: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Something a source saw that is not a number; equal ones are counted, not repeated.

    Shape: `kind` one of OBSERVATION_KINDS; `detail` at most 400 characters, without prompts, outputs or secrets;
    `where` file and line, logger or hook.
    """

    kind: str
    detail: str
    count: int = 1
    where: str | None = None


@record(frozen=True, slots=True, kw_only=True)
class Window:
    """One workload on one device over [start_ns, end_ns), Unix time."""

    workload: Workload
    start_ns: int
    end_ns: int
    origin: Origin
    fingerprint_id: str | None = None
    config_id: str | None = None
    dispatch: Dispatch = Dispatch()
    timing: Timing = Timing()
    traced: TracedWork | None = None
    memory: GraphMemory = GraphMemory()
    cost: ProbeCost | None = None
    blind: tuple[BlindSpot, ...] = ()
    observations: tuple[Observation, ...] = ()
    device: DeviceState | None = None

    @property
    def steps(self) -> int | None:
        """Steps that the window covers, from the best signal it has; None when none counts steps."""
        if self.dispatch.steps is not None:
            return sum(self.dispatch.steps.values())
        if self.timing.step_period is not None:
            return self.timing.step_period.count
        return self.traced.steps + self.traced.skipped_steps if self.traced else None


def _merge_observations(each: Iterable[tuple[Observation, ...]]) -> tuple[Observation, ...]:
    filled = [some for some in each if some]
    if len(filled) < 2:
        return filled[0] if filled else ()
    counts: dict[tuple[str, str, str | None], int] = {}
    for o in chain.from_iterable(filled):
        counts[o.kind, o.detail, o.where] = counts.get((o.kind, o.detail, o.where), 0) + o.count
    return tuple(Observation(kind, detail, n, where) for (kind, detail, where), n in counts.items())


def _merge_blind(each: Iterable[tuple[BlindSpot, ...]]) -> tuple[BlindSpot, ...]:
    filled = [some for some in each if some]
    if len(filled) < 2:
        return filled[0] if filled else ()
    return tuple(dict.fromkeys(chain.from_iterable(filled)))


def merge_windows(earlier: Window, later: Window) -> Window:
    """Two windows of one workload as one; sums are exact, gauges and snapshots are those of the later window."""
    traced, cost = later.traced, later.cost
    return Window(
        workload=later.workload,
        start_ns=min(earlier.start_ns, later.start_ns),
        end_ns=max(earlier.end_ns, later.end_ns),
        origin=later.origin,
        fingerprint_id=later.fingerprint_id or earlier.fingerprint_id,
        config_id=later.config_id or earlier.config_id,
        dispatch=merge_records(earlier.dispatch, later.dispatch),
        timing=merge_records(earlier.timing, later.timing),
        traced=earlier.traced if traced is None else merge_values((earlier.traced, traced)),
        memory=merge_records(earlier.memory, later.memory),
        cost=earlier.cost if cost is None else merge_values((earlier.cost, cost)),
        blind=_merge_blind((earlier.blind, later.blind)),
        observations=_merge_observations((earlier.observations, later.observations)),
        device=later.device or earlier.device,
    )


def merge_all(windows: Sequence[Window]) -> Window:
    """Any number of windows of one workload, at least one, as one: what merging them one by one, in their order, gives.

    Cheaper than that from four on, since no window in between is made.
    """
    if len(windows) < 4:
        return reduce(merge_windows, windows)
    last = windows[-1]
    return Window(
        workload=last.workload,
        start_ns=min(w.start_ns for w in windows),
        end_ns=max(w.end_ns for w in windows),
        origin=last.origin,
        fingerprint_id=next((w.fingerprint_id for w in reversed(windows) if w.fingerprint_id), last.fingerprint_id),
        config_id=next((w.config_id for w in reversed(windows) if w.config_id), last.config_id),
        dispatch=merge_all_records([w.dispatch for w in windows]),
        timing=merge_all_records([w.timing for w in windows]),
        traced=merge_values([w.traced for w in windows]),
        memory=merge_all_records([w.memory for w in windows]),
        cost=merge_values([w.cost for w in windows]),
        blind=_merge_blind(w.blind for w in windows),
        observations=_merge_observations(w.observations for w in windows),
        device=next((w.device for w in reversed(windows) if w.device), None),
    )
