"""Capture and start-up: how long capturing takes, what fails, what it holds."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import MARKS, WORK, Board, Row
from replaywatch.dashboards.panel import Panel, Query
from replaywatch.dashboards.series import RATE, of, quantile, rate, total

CAPTURE: Final = Board(
    uid="replaywatch-capture",
    title="Replaywatch / Capture and start-up",
    help="How long capturing takes, whether it goes on while serving, what fails, and what memory graphs hold.",
    variables=WORK,
    marks=MARKS,
    rows=(
        Row(
            "Captures",
            (
                Panel(
                    title="Captures by outcome",
                    kind="timeseries",
                    queries=(Query(total("outcome", rate("cudagraph_captures_total")), "{{outcome}}"),),
                    help="Captures belong to the start; those that go on while requests are served cost them time.",
                    unit="ops",
                    is_stacked=True,
                ),
                Panel(
                    title="Captures within the time shown",
                    kind="table",
                    queries=(Query(total("namespace, pod, model_name, outcome", of("cudagraph_captures_total"))),),
                    help="Since each agent first saw the workload. failed is never good; throwaway are warm-ups.",
                    columns=("namespace", "pod", "model_name", "outcome"),
                    value_name="captures",
                    drill="replaywatch-workload",
                ),
                Panel(
                    title="Time of a capture",
                    kind="timeseries",
                    queries=(
                        Query(quantile(0.5, "cudagraph_capture_seconds"), "median"),
                        Query(quantile(0.99, "cudagraph_capture_seconds"), "99th percentile"),
                    ),
                    help="Long ones hold up the start.",
                    unit="s",
                ),
                Panel(
                    title="Time spent capturing",
                    kind="timeseries",
                    queries=(Query(total("pod", rate("cudagraph_capture_seconds_sum")), "{{pod}}"),),
                    help="Share of the time; above a few percent while serving, graphs are thrashing.",
                    unit="percentunit",
                ),
                Panel(
                    title="Instantiations",
                    kind="timeseries",
                    queries=(Query(total("pod", rate("cudagraph_instantiations_total")), "{{pod}}"),),
                    help="Executable graphs made a second.",
                    unit="ops",
                ),
                Panel(
                    title="Calls that failed",
                    kind="timeseries",
                    queries=(Query(total("error", rate("cudagraph_failed_calls_total")), "{{error}}"),),
                    help="Graph calls that returned an error, whether or not the program looked.",
                    unit="ops",
                ),
            ),
        ),
        Row(
            "Memory",
            (
                Panel(
                    title="Memory of graph pools",
                    kind="timeseries",
                    queries=(
                        Query(
                            total("namespace, model_name", of("cudagraph_pool_bytes")), "{{namespace}} {{model_name}}"
                        ),
                    ),
                    help="Bytes, by service.",
                    unit="bytes",
                    width=12,
                ),
                Panel(
                    title="Graphs alive",
                    kind="timeseries",
                    queries=(
                        Query(
                            total("namespace, model_name", of("cudagraph_live_graphs")), "{{namespace}} {{model_name}}"
                        ),
                    ),
                    help="Instantiated graphs, by service.",
                    width=12,
                ),
            ),
        ),
        Row(
            "Findings about capturing",
            (
                Panel(
                    title="Capture findings",
                    kind="state-timeline",
                    queries=(
                        Query(
                            "max by (detector, pod) ("
                            + of(
                                "cudagraph_finding",
                                'detector=~"capture_failed|thrash|slow_capture|graph_memory_estimate|unused_graphs|'
                                'failing_calls|replay_stuck"',
                            )
                            + ")",
                            "{{detector}} {{pod}}",
                        ),
                    ),
                    help="Findings of the families capture and faults.",
                    width=16,
                ),
                Panel(
                    title="Processes that took an ended one's place",
                    kind="timeseries",
                    queries=(Query(f"sum(rate(replaywatch_agent_restarts_total[{RATE}]))", "restarts"),),
                    help="A crash during capture shows up here too.",
                    unit="ops",
                ),
            ),
        ),
    ),
)
