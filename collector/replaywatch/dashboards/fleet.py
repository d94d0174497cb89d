"""The fleet: who loses how many GPUs, and whether everything is seen."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import ENGINE, MARKS, MODEL, NAMESPACE, POD, Board, Row
from replaywatch.dashboards.panel import Panel, Query
from replaywatch.dashboards.recoverable import LOST
from replaywatch.dashboards.series import LOST_STEPS, RATE, of, rate, ratio, total

WHO: Final = ("namespace", "pod", "model_name", "engine", "phase", "UUID")

_NOW = Row(
    "Now",
    (
        Panel(
            title="GPUs lost",
            kind="stat",
            queries=(Query(f"sum(max by (UUID) ({of(LOST)})) or vector(0)"),),
            help="GPU equivalents of the time that graphs would bring back. On a shared device the largest counts.",
            unit="none",
            width=4,
            height=4,
            steps=((None, "green"), (0.1, "orange"), (1, "red")),
        ),
        Panel(
            title="GPUs watched",
            kind="stat",
            queries=(Query(f"count(count by (UUID) ({of('cudagraph_verdict')}))"),),
            help="Devices from which at least one workload is judged.",
            width=4,
            height=4,
        ),
        Panel(
            title="Workloads by verdict",
            kind="stat",
            queries=(Query(total("verdict", of("cudagraph_verdict")), "{{verdict}}"),),
            help="Blind and warming up are not healthy: nothing is known of them.",
            width=8,
            height=4,
            colored=True,
        ),
        Panel(
            title="Open incidents",
            kind="stat",
            queries=(Query("sum by (severity) (replaywatch_collector_incidents)", "{{severity}}"),),
            help="Incidents that are not closed, of the whole collector.",
            width=8,
            height=4,
            colored=True,
        ),
    ),
)
_LOSS = Row(
    "Who loses what",
    (
        Panel(
            title="GPUs lost by service",
            kind="timeseries",
            queries=(
                Query(
                    f"sum by (namespace, model_name) (max by (namespace, model_name, UUID) ({of(LOST)}))",
                    "{{namespace}} {{model_name}}",
                ),
            ),
            help="GPU equivalents, of workloads with a finding.",
            unit="none",
            width=12,
            is_stacked=True,
            low=0,
        ),
        Panel(
            title="Steps replayed",
            kind="timeseries",
            queries=(
                Query(
                    ratio(
                        "namespace, model_name",
                        rate("cudagraph_steps_total", 'mode=~"full|piecewise"'),
                        rate("cudagraph_steps_total"),
                    ),
                    "{{namespace}} {{model_name}}",
                ),
            ),
            help="Share of steps that were replayed, full or piecewise, prefill included.",
            unit="percentunit",
            width=12,
            low=0,
            high=1,
        ),
        Panel(
            title="Workloads that lose most",
            kind="table",
            queries=(Query(f"topk(50, {of(LOST)})"),),
            help="Share of the step time that graphs would bring back. A row leads to the workload.",
            unit="percentunit",
            width=14,
            height=10,
            steps=LOST_STEPS,
            columns=WHO,
            value_name="lost",
            drill="replaywatch-workload",
        ),
        Panel(
            title="Open findings",
            kind="table",
            queries=(Query(total("detector, severity, namespace, model_name", of("cudagraph_finding"))),),
            help="Workloads by finding. A row leads to the history of incidents.",
            width=10,
            height=10,
            columns=("detector", "severity", "namespace", "model_name"),
            value_name="workloads",
            drill="replaywatch-incident",
        ),
    ),
)
_WHY = Row(
    "Why",
    (
        Panel(
            title="Steps not fully replayed, by reason",
            kind="timeseries",
            queries=(Query(total("reason", rate("cudagraph_fallbacks_total")), "{{reason}}"),),
            help="Steps a second. prefill_by_design and mode_piecewise are what the engine means to do.",
            unit="ops",
            is_stacked=True,
        ),
        Panel(
            title="Device busy, ours beside dcgm-exporter's",
            kind="timeseries",
            queries=(
                Query(f"avg({of('cudagraph_device_busy_ratio')})", "kernels run (traced)"),
                Query(
                    "avg(max by (UUID) (DCGM_FI_DEV_GPU_UTIL) / 100"
                    f" and on (UUID) max by (UUID) ({of('cudagraph_verdict')}))",
                    "utilisation (dcgm-exporter)",
                ),
            ),
            help="Utilisation counts a device as busy while any kernel runs in a sampling period, so it looks busy "
            "where launch gaps leave it idle; that the two differ is the point. Needs dcgm-exporter.",
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            title="Tokens generated (vLLM)",
            kind="timeseries",
            queries=(
                Query(
                    f'sum by (model_name) (rate(vllm:generation_tokens_total{{model_name=~"$model"}}[{RATE}]))',
                    "{{model_name}}",
                ),
            ),
            help="What the loss is a loss of. Needs vLLM's own metrics.",
            unit="ops",
        ),
    ),
)
_SIGHT = Row(
    "Whether everything is seen",
    (
        Panel(
            title="Agents by release",
            kind="stat",
            queries=(Query("count by (version) (replaywatch_agent_info)", "{{version}}"),),
            help="Agents that answer.",
            width=4,
        ),
        Panel(
            title="Blind workloads",
            kind="table",
            queries=(Query(of("cudagraph_verdict", 'verdict=~"blind|warming_up"') + " == 1"),),
            help="Nothing is known of these. The workload's page says what is missing.",
            width=8,
            columns=("verdict", "namespace", "pod", "model_name", "engine"),
            value_name="is",
            drill="replaywatch-workload",
        ),
        Panel(
            title="Lost or refused on the way",
            kind="timeseries",
            queries=(
                Query(f"sum(rate(replaywatch_probe_frames_dropped_total[{RATE}]))", "frames dropped by probes"),
                Query(
                    f'sum by (outcome) (rate(replaywatch_agent_frames_total{{outcome!~"accepted|duplicate"}}[{RATE}]))',
                    "frames: {{outcome}}",
                ),
                Query(f"sum(rate(replaywatch_agent_windows_dropped_total[{RATE}]))", "windows dropped by agents"),
                Query(
                    "sum by (outcome) (rate(replaywatch_collector_batches_total"
                    f'{{outcome!~"accepted|duplicate"}}[{RATE}]))',
                    "batches: {{outcome}}",
                ),
            ),
            help="Zero is good. Silence is visible here.",
            unit="ops",
            width=6,
        ),
        Panel(
            title="Detection tick",
            kind="timeseries",
            queries=(
                Query(
                    "histogram_quantile(0.99, sum by (le) "
                    f"(rate(replaywatch_collector_detection_seconds_bucket[{RATE}])))",
                    "99th percentile",
                ),
                Query("time() - max(replaywatch_collector_last_tick_timestamp_seconds)", "since the last one"),
            ),
            help="Time that judging all workloads takes, and how long ago it was done.",
            unit="s",
            width=6,
        ),
    ),
)

FLEET: Final = Board(
    uid="replaywatch-fleet",
    title="Replaywatch / Fleet",
    help="Which services lose GPU time to missing, partial or failing CUDA Graphs.",
    variables=(NAMESPACE, ENGINE, MODEL, POD),
    marks=MARKS,
    rows=(_NOW, _LOSS, _WHY, _SIGHT),
)
