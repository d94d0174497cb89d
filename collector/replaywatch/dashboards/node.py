"""A node: its devices, the agent on it, and what watching costs."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import INCIDENTS, MODEL, NAMESPACE, NODE, Board, Mark, Row
from replaywatch.dashboards.panel import Panel, Query
from replaywatch.dashboards.promql import TARGET
from replaywatch.dashboards.recoverable import LOST
from replaywatch.dashboards.series import LOST_STEPS, RATE

_HERE: Final = f'on ({TARGET}) group_left (node) replaywatch_agent_info{{node=~"$node"}}'
_KNOWN: Final = 'max by (UUID, node) (cudagraph_workload_info{node=~"$node"})'


def here(expr: str) -> str:
    """A series of the agents on the chosen nodes."""
    return f"{expr} * {_HERE}"


def _rate(metric: str) -> str:
    return here(f"rate({metric}[{RATE}])")


_DEVICES = Row(
    "Devices",
    (
        Panel(
            title="Devices and what they lose",
            kind="table",
            queries=(Query(f"max by (node, UUID) (max by (UUID) ({LOST}) * on (UUID) group_right {_KNOWN})"),),
            help="Share of the step time that graphs would bring back, of the worst workload on each device.",
            unit="percentunit",
            width=12,
            steps=LOST_STEPS,
            columns=("node", "UUID"),
            value_name="lost",
        ),
        Panel(
            title="Workloads on these nodes",
            kind="table",
            queries=(
                Query('count by (node, namespace, pod, model_name, engine) (cudagraph_workload_info{node=~"$node"})'),
            ),
            help="A row leads to the workload.",
            width=12,
            columns=("node", "namespace", "pod", "model_name", "engine"),
            value_name="parts",
            drill="replaywatch-workload",
        ),
        Panel(
            title="Kernels run on each device",
            kind="timeseries",
            queries=(Query(f"max by (node, UUID) ({here('cudagraph_device_busy_ratio')})", "{{node}} {{UUID}}"),),
            help="Share of the traced time in which the device worked.",
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            title="Utilisation (dcgm-exporter)",
            kind="timeseries",
            queries=(
                Query(
                    f"max by (UUID) (DCGM_FI_DEV_GPU_UTIL) / 100 * on (UUID) group_right {_KNOWN}", "{{node}} {{UUID}}"
                ),
            ),
            help="The same devices as dcgm-exporter sees them, joined on UUID.",
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            title="Power (dcgm-exporter)",
            kind="timeseries",
            queries=(
                Query(f"max by (UUID) (DCGM_FI_DEV_POWER_USAGE) * on (UUID) group_right {_KNOWN}", "{{node}} {{UUID}}"),
            ),
            help="A device that waits for launches draws less than one that works.",
            unit="watt",
        ),
    ),
)
_AGENT = Row(
    "Agent",
    (
        Panel(
            title="Agents here",
            kind="table",
            queries=(Query(f'replaywatch_agent_info{{node=~"$node"}} * on ({TARGET}) group_left () up'),),
            help="Agents on these nodes, and whether they answer.",
            width=8,
            columns=("node", "instance", "version"),
            value_name="up",
        ),
        Panel(
            title="Watched processes",
            kind="timeseries",
            queries=(Query(here("replaywatch_agent_processes"), "{{node}}"),),
            help="Processes whose probes send.",
        ),
        Panel(
            title="Frames from probes",
            kind="timeseries",
            queries=(
                Query(f"sum by (node, outcome) ({_rate('replaywatch_agent_frames_total')})", "{{node}} {{outcome}}"),
            ),
            help="What came over the socket, by what became of it.",
            unit="ops",
        ),
        Panel(
            title="Waiting to be sent",
            kind="timeseries",
            queries=(Query(here("replaywatch_agent_queued_windows"), "{{node}}"),),
            help="Windows that the collector has not taken yet.",
        ),
        Panel(
            title="Oldest waiting window",
            kind="timeseries",
            queries=(Query(here("replaywatch_agent_oldest_window_seconds"), "{{node}}"),),
            help="How late verdicts are.",
            unit="s",
        ),
        Panel(
            title="Deliveries to be tried again",
            kind="timeseries",
            queries=(
                Query(f"sum by (node, reason) ({_rate('replaywatch_agent_retries_total')})", "{{node}} {{reason}}"),
            ),
            help="By why they failed.",
            unit="ops",
        ),
    ),
)
_COST = Row(
    "What watching costs",
    (
        Panel(
            title="Host time in hooks",
            kind="timeseries",
            queries=(Query(_rate("replaywatch_probe_hook_seconds_total"), "{{node}}"),),
            help="Of all watched processes; the budget is half a percent of one processor for each.",
            unit="percentunit",
        ),
        Panel(
            title="Time traced",
            kind="timeseries",
            queries=(Query(_rate("replaywatch_probe_traced_seconds_total"), "{{node}}"),),
            help="Share of the time in which kernels were recorded, summed over processes.",
            unit="percentunit",
        ),
        Panel(
            title="Processor of the agent",
            kind="timeseries",
            queries=(Query(_rate("replaywatch_agent_cpu_seconds_total"), "{{node}}"),),
            help="In processors.",
            unit="percentunit",
            width=4,
        ),
        Panel(
            title="Memory of the agent",
            kind="timeseries",
            queries=(Query(here("replaywatch_agent_resident_bytes"), "{{node}}"),),
            help="Resident.",
            unit="bytes",
            width=4,
        ),
    ),
)
_RESTARTS = Mark(
    "Restarts",
    here("(increase(replaywatch_agent_restarts_total[2m]) > 0)"),
    "Restart on {{node}}",
    "a watched process took an ended one's place",
    "purple",
)

NODE_BOARD: Final = Board(
    uid="replaywatch-node",
    title="Replaywatch / Node",
    help="The devices of a node, the agent on it, and what watching costs.",
    variables=(NODE, NAMESPACE, MODEL),
    marks=(INCIDENTS, _RESTARTS),
    rows=(_DEVICES, _AGENT, _COST),
)
