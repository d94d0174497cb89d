"""The ladder: captured sizes beside the batches that came, what falls above it, and what padding costs."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import MARKS, WORK, Board, Row
from replaywatch.dashboards.panel import Panel, Query
from replaywatch.dashboards.series import LOST_STEPS, of, quantile, rate, ratio, total

_DECODE: Final = 'phase!="prefill"'

LADDER: Final = Board(
    uid="replaywatch-ladder",
    title="Replaywatch / Ladder",
    help="Captured sizes beside the batches that came, what falls above the largest, and what padding costs.",
    variables=WORK,
    marks=MARKS,
    rows=(
        Row(
            "Sizes",
            (
                Panel(
                    title="Batches against the ladder",
                    kind="timeseries",
                    queries=(
                        Query(
                            f"max by (model_name) ({of('cudagraph_capture_ceiling')})",
                            "largest captured {{model_name}}",
                        ),
                        Query(f"max by (model_name) ({of('cudagraph_batch_size_limit')})", "admitted {{model_name}}"),
                        Query(
                            quantile(0.99, "cudagraph_batch_size", "model_name"), "99th percentile came {{model_name}}"
                        ),
                        Query(quantile(0.5, "cudagraph_batch_size", "model_name"), "median came {{model_name}}"),
                    ),
                    help="Where what is admitted lies above the largest captured size, load pushes steps out. "
                    "Sizes that came are powers of two, interpolated.",
                    width=12,
                    low=0,
                ),
                Panel(
                    title="Ceiling below the limit",
                    kind="table",
                    queries=(
                        Query(
                            "max by (namespace, model_name, engine) ("
                            + of("cudagraph_batch_size_limit")
                            + ") - max by (namespace, model_name, engine) ("
                            + of("cudagraph_capture_ceiling")
                            + ") > 0"
                        ),
                    ),
                    help="Sequences that may be admitted beyond the largest captured size.",
                    width=12,
                    steps=((None, "green"), (1, "orange")),
                    columns=("namespace", "model_name", "engine"),
                    value_name="beyond",
                    drill="replaywatch-workload",
                ),
                Panel(
                    title="Batch sizes",
                    kind="heatmap",
                    queries=(Query(total("le", rate("cudagraph_batch_size_bucket")), "{{le}}"),),
                    help="Steps by the sequences in them.",
                    width=12,
                ),
                Panel(
                    title="Batch sizes that were not fully replayed",
                    kind="heatmap",
                    queries=(Query(total("le", rate("cudagraph_eager_batch_size_bucket")), "{{le}}"),),
                    help="The same for steps outside full graphs: above the ceiling, or in holes of the ladder.",
                    width=12,
                ),
            ),
        ),
        Row(
            "What falls out",
            (
                Panel(
                    title="Decode steps above the ceiling",
                    kind="timeseries",
                    queries=(
                        Query(
                            ratio(
                                "namespace, model_name",
                                rate("cudagraph_fallbacks_total", _DECODE, 'reason="above_ceiling"'),
                                rate("cudagraph_steps_total", _DECODE),
                            ),
                            "{{namespace}} {{model_name}}",
                        ),
                    ),
                    help="Share of decode steps whose batch was larger than every captured size.",
                    unit="percentunit",
                    low=0,
                    steps=LOST_STEPS,
                ),
                Panel(
                    title="Decode steps in no matching graph",
                    kind="timeseries",
                    queries=(
                        Query(
                            ratio(
                                "namespace, model_name",
                                rate("cudagraph_fallbacks_total", _DECODE, 'reason="no_matching_graph"'),
                                rate("cudagraph_steps_total", _DECODE),
                            ),
                            "{{namespace}} {{model_name}}",
                        ),
                    ),
                    help="Share of decode steps that fell into a hole of the ladder.",
                    unit="percentunit",
                    low=0,
                ),
                Panel(
                    title="Padding",
                    kind="timeseries",
                    queries=(
                        Query(
                            "1 - "
                            + ratio(
                                "namespace, model_name",
                                rate("cudagraph_real_tokens_total", _DECODE),
                                rate("cudagraph_padded_tokens_total", _DECODE),
                            ),
                            "{{namespace}} {{model_name}}",
                        ),
                    ),
                    help="Share of processed tokens that were padding: what a coarse ladder costs.",
                    unit="percentunit",
                    low=0,
                ),
            ),
        ),
        Row(
            "Findings about the ladder",
            (
                Panel(
                    title="Ladder findings",
                    kind="state-timeline",
                    queries=(
                        Query(
                            "max by (detector, pod) ("
                            + of("cudagraph_finding", 'detector=~"overflow|fallbacks|padding|exact_sizes"')
                            + ")",
                            "{{detector}} {{pod}}",
                        ),
                    ),
                    help="overflow, fallbacks, padding, exact_sizes.",
                    width=24,
                ),
            ),
        ),
    ),
)
