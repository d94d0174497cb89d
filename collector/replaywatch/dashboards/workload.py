"""One workload: what it is, how its steps run, where the time goes, and what would come back."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import MARKS, WORK, Board, Row
from replaywatch.dashboards.panel import Panel, Query
from replaywatch.dashboards.series import LOST_STEPS, RATE, SHARE_OF_REPLAYS, of, quantile, rate, ratio, total

_NOW = Row(
    "Verdict",
    (
        Panel(
            title="Verdict",
            kind="table",
            queries=(Query(f"{of('cudagraph_verdict')} == 1"),),
            help="As of the last detection tick.",
            width=10,
            height=6,
            columns=("verdict", "namespace", "pod", "phase", "rank", "gpu"),
            value_name="is",
        ),
        Panel(
            title="Would come back",
            kind="bargauge",
            queries=(Query(f"max by (bound) ({of('cudagraph_recoverable_ratio')})", "{{bound}}"),),
            help="Share of the step time, with the interval that holds the truth nine times in ten.",
            unit="percentunit",
            width=6,
            height=6,
            steps=LOST_STEPS,
            low=0,
            high=1,
        ),
        Panel(
            title="Replayed",
            kind="stat",
            queries=(
                Query(
                    ratio(
                        "phase",
                        rate("cudagraph_steps_total", 'mode=~"full|piecewise"'),
                        rate("cudagraph_steps_total"),
                    ),
                    "{{phase}}",
                ),
            ),
            help="Share of steps that were replayed. A prefill is eager by design in most engines.",
            unit="percentunit",
            width=4,
            height=6,
            steps=SHARE_OF_REPLAYS,
        ),
        Panel(
            title="Kernels in graphs",
            kind="stat",
            queries=(Query(f"avg({of('cudagraph_kernel_coverage_ratio')})"),),
            help="Share of the traced kernels that came from graphs.",
            unit="percentunit",
            width=4,
            height=6,
            steps=SHARE_OF_REPLAYS,
        ),
        Panel(
            title="What it runs on",
            kind="table",
            queries=(Query(of("cudagraph_workload_info")),),
            help="Requested and resolved graph mode, and the versions that decide how fast the same work runs.",
            width=24,
            height=5,
            columns=(
                "pod",
                "phase",
                "requested_mode",
                "resolved_mode",
                "engine",
                "engine_version",
                "gpu_model",
                "driver",
                "node",
                "config",
            ),
            value_name="is",
            drill="replaywatch-node",
        ),
    ),
)
_STEPS = Row(
    "Steps",
    (
        Panel(
            title="Steps by mode",
            kind="timeseries",
            queries=(Query(total("mode", rate("cudagraph_steps_total")), "{{mode}}"),),
            help="Steps a second, by how they were dispatched.",
            unit="ops",
            is_stacked=True,
            colored=True,
        ),
        Panel(
            title="Reasons",
            kind="timeseries",
            queries=(Query(total("reason", rate("cudagraph_fallbacks_total")), "{{reason}}"),),
            help="Why steps were not fully replayed.",
            unit="ops",
            is_stacked=True,
        ),
        Panel(
            title="Step time",
            kind="timeseries",
            queries=(
                Query(quantile(0.5, "cudagraph_step_seconds", "phase"), "median {{phase}}"),
                Query(quantile(0.99, "cudagraph_step_seconds", "phase"), "99th percentile {{phase}}"),
            ),
            help="From the start of one step to the start of the next. Buckets double; quantiles are interpolated.",
            unit="s",
        ),
        Panel(
            title="Device busy",
            kind="timeseries",
            queries=(Query(of("cudagraph_device_busy_ratio"), "{{pod}} {{rank}} {{phase}}"),),
            help="Share of the traced time in which the device worked.",
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            title="Would come back, over time",
            kind="timeseries",
            queries=(Query(f"max by (bound) ({of('cudagraph_recoverable_ratio')})", "{{bound}}"),),
            help="The estimate with its interval.",
            unit="percentunit",
            low=0,
        ),
        Panel(
            title="Time between tokens (vLLM)",
            kind="timeseries",
            queries=(
                Query(
                    "histogram_quantile(0.5, sum by (le, model_name) (rate("
                    f'vllm:inter_token_latency_seconds_bucket{{model_name=~"$model"}}[{RATE}])))',
                    "median {{model_name}}",
                ),
            ),
            help="What users feel of it. Needs vLLM's own metrics.",
            unit="s",
        ),
    ),
)
_GAPS = Row(
    "Gaps",
    (
        Panel(
            title="Launch gap inside a step",
            kind="timeseries",
            queries=(
                Query(quantile(0.5, "cudagraph_launch_gap_seconds"), "median"),
                Query(quantile(0.99, "cudagraph_launch_gap_seconds"), "99th percentile"),
            ),
            help="Device idle between two kernels; what graphs exist to remove.",
            unit="s",
        ),
        Panel(
            title="Gap between replays",
            kind="timeseries",
            queries=(
                Query(quantile(0.5, "cudagraph_replay_gap_seconds"), "median"),
                Query(quantile(0.99, "cudagraph_replay_gap_seconds"), "99th percentile"),
            ),
            help="Device idle between the end of a replay and the next work; host work that no graph removes.",
            unit="s",
        ),
        Panel(
            title="Replay time",
            kind="timeseries",
            queries=(
                Query(quantile(0.5, "cudagraph_replay_seconds"), "median"),
                Query(quantile(0.99, "cudagraph_replay_seconds"), "99th percentile"),
            ),
            help="Device time of a replay, sampled.",
            unit="s",
        ),
    ),
)
_STATE = Row(
    "Findings and memory",
    (
        Panel(
            title="Findings over time",
            kind="state-timeline",
            queries=(Query(f"max by (detector, severity) ({of('cudagraph_finding')})", "{{detector}} ({{severity}})"),),
            help="When each finding was there.",
            width=12,
        ),
        Panel(
            title="Memory of graphs",
            kind="timeseries",
            queries=(Query(total("pod, rank", of("cudagraph_pool_bytes")), "{{pod}} {{rank}}"),),
            help="Bytes held by the memory pools of graphs.",
            unit="bytes",
            width=6,
        ),
        Panel(
            title="Live graphs",
            kind="timeseries",
            queries=(Query(total("pod, rank", of("cudagraph_live_graphs")), "{{pod}} {{rank}}"),),
            help="Instantiated graphs alive. Steady growth is a leak or a ladder without end.",
            width=6,
        ),
    ),
)

WORKLOAD_BOARD: Final = Board(
    uid="replaywatch-workload",
    title="Replaywatch / Workload",
    help="How the steps of chosen workloads run, where their time goes, and what graphs would bring back.",
    variables=WORK,
    marks=MARKS,
    rows=(_NOW, _STEPS, _GAPS, _STATE),
)
