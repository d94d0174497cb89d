"""Incidents: what fires, since when, how fast budgets burn, and whether people were told."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import MARKS, WORK, Board, Row
from replaywatch.dashboards.burn import COVERAGE, OVERFLOW, WINDOWS, Burn, ratio_name
from replaywatch.dashboards.panel import Panel, Query
from replaywatch.dashboards.series import RATE, of

_SERVICE: Final = 'namespace=~"$namespace", engine=~"$engine", model_name=~"$model"'


def _burn(burn: Burn, title: str) -> Panel:
    return Panel(
        title=title,
        kind="timeseries",
        queries=tuple(
            Query(f"{ratio_name(burn, w)}{{{_SERVICE}}}", f"{{{{namespace}}}} {{{{model_name}}}} over {w}")
            for w in WINDOWS
        ),
        help="Shares over the windows that the burn rates look at. " + burn.meaning,
        unit="percentunit",
        width=12,
        low=0,
        high=1,
    )


INCIDENT: Final = Board(
    uid="replaywatch-incident",
    title="Replaywatch / Incidents",
    help="What fires and since when, how fast budgets burn, and whether people were told.",
    variables=WORK,
    marks=MARKS,
    rows=(
        Row(
            "What is open",
            (
                Panel(
                    title="Firing alerts",
                    kind="table",
                    queries=(
                        Query(
                            "max by (alertname, severity, namespace, pod, model_name)"
                            ' (ALERTS{alertname=~"CudaGraph.*", alertstate="firing", namespace=~"$namespace",'
                            ' model_name=~"$model"})'
                        ),
                    ),
                    help="A row leads to the workload.",
                    width=14,
                    height=9,
                    columns=("alertname", "severity", "namespace", "pod", "model_name"),
                    value_name="firing",
                    drill="replaywatch-workload",
                ),
                Panel(
                    title="Findings by detector",
                    kind="bargauge",
                    queries=(
                        Query(
                            f"sum by (detector, severity) ({of('cudagraph_finding')})", "{{detector}} ({{severity}})"
                        ),
                    ),
                    help="Workloads with each finding now.",
                    width=10,
                    height=9,
                ),
                Panel(
                    title="History of alerts",
                    kind="state-timeline",
                    queries=(
                        Query(
                            "max by (alertname, namespace, model_name)"
                            ' (ALERTS{alertname=~"CudaGraph.*", alertstate="firing", namespace=~"$namespace",'
                            ' model_name=~"$model"})',
                            "{{alertname}} {{namespace}} {{model_name}}",
                        ),
                    ),
                    help="When each alert fired.",
                    width=14,
                ),
                Panel(
                    title="Incidents over time",
                    kind="timeseries",
                    queries=(Query("sum by (severity) (replaywatch_collector_incidents)", "{{severity}}"),),
                    help="Open incidents of the whole collector.",
                    width=10,
                    is_stacked=True,
                    colored=True,
                ),
            ),
        ),
        Row("Burn rates", (_burn(OVERFLOW, "Above the largest graph"), _burn(COVERAGE, "Not replayed"))),
        Row(
            "Whether people were told",
            (
                Panel(
                    title="Notifications",
                    kind="timeseries",
                    queries=(
                        Query(
                            f"sum by (destination, outcome) (rate(replaywatch_collector_notifications_total[{RATE}]))",
                            "{{destination}} {{outcome}}",
                        ),
                    ),
                    help="By destination and what became of them.",
                    unit="ops",
                    width=12,
                ),
                Panel(
                    title="Given up within a day",
                    kind="stat",
                    queries=(
                        Query(
                            "sum by (destination)"
                            ' (increase(replaywatch_collector_notifications_total{outcome="dead"}[1d]))',
                            "{{destination}}",
                        ),
                    ),
                    help="Messages that nobody got. GET /v1/notifications?state=dead shows them.",
                    width=6,
                    steps=((None, "green"), (1, "red")),
                ),
                Panel(
                    title="Workloads seen",
                    kind="stat",
                    queries=(Query("sum(replaywatch_collector_workloads)"),),
                    help="Workloads that sent lately.",
                    width=6,
                ),
            ),
        ),
    ),
)
