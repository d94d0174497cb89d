"""What graphs would bring back, as series that people put on a wall and alert on."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.burn import CHEAP
from replaywatch.dashboards.promql import SERVICE, WORKLOAD
from replaywatch.dashboards.rule import Alert, Record, RuleSettings

LOST: Final = "workload:cudagraph_recoverable:ratio"
LOST_GPUS: Final = "cluster:cudagraph_recoverable_gpus:sum"
SERVICE_GPUS: Final = "service:cudagraph_recoverable_gpus:sum"
WATCHED_GPUS: Final = "cluster:cudagraph_watched_gpus:count"
REPLAYED: Final = "workload:cudagraph_replayed:ratio_rate5m"


def recoverable_records() -> tuple[Record, ...]:
    """Series of recoverable time, from the collector's verdicts."""
    finding = f'(max by ({WORKLOAD}) (cudagraph_verdict{{verdict="finding"}}) == 1)'
    ratio = f'max by ({WORKLOAD}) (cudagraph_recoverable_ratio{{bound="estimate"}})'
    steps = f"sum by ({WORKLOAD}) (rate(cudagraph_steps_total[5m]))"
    replayed = f'sum by ({WORKLOAD}) (rate(cudagraph_steps_total{{mode=~"full|piecewise"}}[5m]))'
    return (
        Record(
            name=LOST,
            expr=f"clamp_min({ratio} and on ({WORKLOAD}) {finding}, 0)",
            help="Share of the step time that graphs would bring back, of workloads with a finding.",
        ),
        Record(
            name=LOST_GPUS,
            # On a device that several workloads share, the largest counts, as on the collector's page.
            expr=f"sum(max by (UUID) ({LOST})) or vector(0)",
            help="GPU equivalents that the fleet loses.",
        ),
        Record(
            name=SERVICE_GPUS,
            expr=f"sum by ({SERVICE}) (max by ({SERVICE}, UUID) ({LOST}))",
            help="GPU equivalents that a service loses.",
        ),
        Record(
            name=WATCHED_GPUS,
            expr='count(count by (UUID) (cudagraph_verdict{verdict="finding"})) or vector(0)',
            help="GPUs of which workloads are judged.",
        ),
        Record(
            name=CHEAP,
            expr=f'max by ({SERVICE}) (cudagraph_recoverable_ratio{{bound="low"}})',
            help="Low end of the recoverable share, of a service's worst workload.",
        ),
        Record(
            name=REPLAYED,
            expr=f"(({replayed}) or ({steps} * 0)) / ({steps} > 0)",
            help="Share of steps that were replayed, full or piecewise.",
        ),
    )


def recoverable_alerts(settings: RuleSettings) -> tuple[Alert, ...]:
    """The fleet as a whole loses more than it may."""
    return (
        Alert(
            name="CudaGraphFleetLosesGpus",
            expr=f"{LOST_GPUS} > {settings.gpus:g}",
            hold="15m",
            severity="warning",
            labels={"family": "cost"},
            summary="The fleet loses {{ $value | humanize }} GPUs' worth of time to missing graphs",
            description="Summed over devices, from the estimates of all workloads with a finding.",
            meaning="Every workload's recoverable share, added up over devices, is above the limit that was set.",
            action="The fleet dashboard lists the services by what they lose; begin with the first.",
        ),
    )
