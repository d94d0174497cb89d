"""`WorkSums`: the totals of one workload while its timeline is swept; becomes `TracedWork`, `Timing` and `Dispatch`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.window import Dispatch, Timing, TracedWork, TraceMethod

_MOST_SIZES = 64


@dataclass(slots=True)
class WorkSums:
    """Counts and nanoseconds as `TracedWork` names them; histograms as `Timing` names them."""

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
    host_fixed_ns: int = 0
    host_stall_ns: int = 0
    sync_ns: int = 0
    in_graph_gap_ns: int = 0
    in_graph_gaps: int = 0
    unmatched_kernels: int = 0
    total_span_ns: int = 0
    total_busy_ns: int = 0
    total_kernels: int = 0
    total_graph_kernels: int = 0
    has_calls: bool = False
    modes: Counter[str] = field(default_factory=Counter)
    batch_sizes: Counter[int] = field(default_factory=Counter)
    eager_batch_sizes: Counter[int] = field(default_factory=Counter)
    by_stream: Counter[int] = field(default_factory=Counter)
    ns_by_stream: Counter[int] = field(default_factory=Counter)
    replays: HistogramBuilder = field(default_factory=HistogramBuilder)
    replay_gaps: HistogramBuilder = field(default_factory=HistogramBuilder)
    launch_gaps: HistogramBuilder = field(default_factory=HistogramBuilder)
    periods: HistogramBuilder = field(default_factory=HistogramBuilder)
    periods_by_mode: dict[str, HistogramBuilder] = field(default_factory=dict)
    launch_calls: HistogramBuilder = field(default_factory=HistogramBuilder)
    graph_launch_calls: HistogramBuilder = field(default_factory=HistogramBuilder)

    def traced(self, method: TraceMethod, has_cpu_events: bool, gaps_are_evidence: bool, dropped: int) -> TracedWork:
        """The totals as the contract has them; host times are None where no call was recorded."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        busiest = self.ns_by_stream.most_common(1)
        return TracedWork(
            **plain,
            method=method,
            has_cpu_events=has_cpu_events,
            gaps_are_evidence=gaps_are_evidence,
            dropped_records=dropped,
            chain_kernels=self.by_stream[busiest[0][0]] if busiest else 0,
            host_fixed_ns=self.host_fixed_ns if self.has_calls else None,
            host_stall_ns=self.host_stall_ns if self.has_calls else None,
            sync_ns=self.sync_ns if self.has_calls else None,
            in_graph_gap_ns=self.in_graph_gap_ns if self.in_graph_gaps else None,
            in_graph_gaps=self.in_graph_gaps or None,
        )

    def timing(self, capture: Histogram | None, instantiate: Histogram | None) -> Timing:
        """The histograms; None where nothing was counted."""
        by_mode = {mode: builder.build() for mode, builder in self.periods_by_mode.items()}
        return Timing(
            replay=_built(self.replays),
            replay_gap=_built(self.replay_gaps),
            launch_gap=_built(self.launch_gaps),
            step_period=_built(self.periods),
            step_by_mode=by_mode or None,
            capture=capture,
            instantiate=instantiate,
            launch_call=_built(self.launch_calls),
            graph_launch_call=_built(self.graph_launch_calls),
        )

    def dispatch(
        self, replays: int, captures: int, instantiations: int, destroys: int, failed_calls: dict[str, int]
    ) -> Dispatch:
        """Steps by mode and sizes, with the graph calls of the whole trace."""
        return Dispatch(
            steps=dict(self.modes) or None,
            batch_sizes=_few(self.batch_sizes) or None,
            eager_batch_sizes=_few(self.eager_batch_sizes) or None,
            replays=replays,
            captures={"ok": captures} if captures else None,
            instantiations=instantiations or None,
            destroys=destroys or None,
            failed_calls=failed_calls or None,
        )


_COMPUTED = {"chain_kernels", "host_fixed_ns", "host_stall_ns", "sync_ns", "in_graph_gap_ns", "in_graph_gaps"}
_PLAIN = tuple(
    name for name in TracedWork.__dataclass_fields__ if name in WorkSums.__dataclass_fields__ and name not in _COMPUTED
)


def _built(builder: HistogramBuilder) -> Histogram | None:
    return builder.build() if builder.count else None


def _few(sizes: Counter[int]) -> dict[int, int]:
    """At most 64 sizes; more are rounded up to powers of two."""
    if len(sizes) <= _MOST_SIZES:
        return dict(sizes)
    rounded: Counter[int] = Counter()
    for size, count in sizes.items():
        rounded[1 << max(0, size - 1).bit_length()] += count
    return dict(rounded)
