"""The metric catalogue: one table that makes the exporters, the docs, the dashboards and the rules.

Names follow Prometheus: domain first, base units, `_total` for counters. Labels are closed sets, or join with
dcgm-exporter (`gpu`, `UUID`, `namespace`, `pod`, `container`) and vLLM (`model_name`). No kernel names, graph ids or
free text ever become labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MetricKind = Literal["counter", "gauge", "histogram", "info"]
Exposer = Literal["agent", "collector", "both"]

WORKLOAD_LABELS: Final = (
    "namespace",
    "pod",
    "container",
    "engine",
    "model_name",
    "component",
    "rank",
    "gpu",
    "UUID",
    "phase",
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. `labels` are those beside WORKLOAD_LABELS, which a row of scope "workload" always has."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    scope: Literal["workload", "self"] = "workload"
    exposer: Exposer = "agent"


def _own(name: str, kind: MetricKind, text: str, *labels: str, exposer: Exposer = "agent") -> Metric:
    return Metric(name, kind, text, labels, "self", exposer)


CATALOGUE: Final = (
    Metric("cudagraph_steps_total", "counter", "Steps by how they were dispatched.", ("mode",)),
    Metric("cudagraph_fallbacks_total", "counter", "Steps that were not fully replayed, by reason.", ("reason",)),
    Metric("cudagraph_replays_total", "counter", "Graph replays."),
    Metric("cudagraph_captures_total", "counter", "Graph captures by outcome.", ("outcome",)),
    Metric("cudagraph_instantiations_total", "counter", "Graph instantiations."),
    Metric("cudagraph_failed_calls_total", "counter", "Graph calls that returned an error.", ("error",)),
    Metric("cudagraph_real_tokens_total", "counter", "Tokens that steps were asked to process."),
    Metric("cudagraph_padded_tokens_total", "counter", "Tokens that steps processed, padding included."),
    Metric("cudagraph_live_graphs", "gauge", "Instantiated graphs alive."),
    Metric("cudagraph_pool_bytes", "gauge", "Bytes held by graph memory pools."),
    Metric("cudagraph_replay_seconds", "histogram", "Device time of a graph replay (sampled)."),
    Metric("cudagraph_replay_gap_seconds", "histogram", "Device idle between a replay and the next work (sampled)."),
    Metric("cudagraph_launch_gap_seconds", "histogram", "Device idle between kernels inside a step (traced)."),
    Metric("cudagraph_step_seconds", "histogram", "Step period, start to start."),
    Metric("cudagraph_capture_seconds", "histogram", "Time of a graph capture."),
    Metric("cudagraph_batch_size", "histogram", "Sequences of a step."),
    Metric("cudagraph_eager_batch_size", "histogram", "Sequences of a step that was not fully replayed."),
    Metric("cudagraph_kernel_coverage_ratio", "gauge", "Share of traced kernels that came from graphs."),
    Metric("cudagraph_device_busy_ratio", "gauge", "Share of traced time in which the device worked."),
    Metric(
        "cudagraph_recoverable_ratio",
        "gauge",
        "Share of the step time that graphs would bring back; low, estimate and high of the interval.",
        ("bound",),
        exposer="collector",
    ),
    Metric(
        "cudagraph_finding",
        "gauge",
        "1 while a finding is open; what is no fault has the severity info.",
        ("detector", "severity"),
        exposer="collector",
    ),
    Metric(
        "cudagraph_verdict",
        "gauge",
        "1 for the current verdict of a workload.",
        ("verdict",),
        exposer="collector",
    ),
    Metric(
        "cudagraph_workload_info",
        "info",
        "Engine versions and graph modes of a workload.",
        ("requested_mode", "resolved_mode", "gpu_model", "driver", "engine_version", "node", "config"),
        exposer="collector",
    ),
    Metric(
        "cudagraph_capture_ceiling",
        "gauge",
        "Largest size that a graph was captured for, in the engine's own unit.",
        ("unit",),
        exposer="collector",
    ),
    Metric(
        "cudagraph_batch_size_limit",
        "gauge",
        "Sequences that the engine admits to one batch.",
        exposer="collector",
    ),
    _own("replaywatch_agent_info", "info", "Release and place of the agent.", "version", "node"),
    _own("replaywatch_probe_hook_seconds_total", "counter", "Host time spent inside hooks of watched processes."),
    _own("replaywatch_probe_frames_dropped_total", "counter", "Frames that probes could not send."),
    _own("replaywatch_probe_errors_total", "counter", "Faults inside probes, each of which disabled a hook."),
    _own("replaywatch_probe_traced_seconds_total", "counter", "Time during which kernels were traced."),
    _own("replaywatch_agent_frames_total", "counter", "Frames received from probes, by outcome.", "outcome"),
    _own("replaywatch_agent_batches_total", "counter", "Batches sent to the collector, by outcome.", "outcome"),
    _own("replaywatch_agent_queued_windows", "gauge", "Windows waiting to be sent."),
    _own("replaywatch_agent_windows_dropped_total", "counter", "Windows dropped because the queue was full."),
    _own("replaywatch_agent_retries_total", "counter", "Deliveries to be tried again, by reason.", "reason"),
    _own("replaywatch_agent_spool_bytes", "gauge", "Bytes of the spool, on disk and in memory."),
    _own("replaywatch_agent_oldest_window_seconds", "gauge", "Age of the oldest window that waits to be sent."),
    _own(
        "replaywatch_agent_spool_errors_total", "counter", "Writes that the disk refused; the windows went to memory."
    ),
    _own("replaywatch_agent_processes", "gauge", "Watched processes that live."),
    _own("replaywatch_agent_restarts_total", "counter", "Watched processes that took an ended one's place."),
    _own("replaywatch_agent_hidden_windows_total", "counter", "Windows of workloads beyond the exposed ones."),
    _own("replaywatch_agent_device_reads_total", "counter", "Readings of devices through NVML, by outcome.", "outcome"),
    _own(
        "replaywatch_agent_witness_reads_total",
        "counter",
        "Readings of the engine's own metrics and log, by outcome.",
        "witness",
        "outcome",
    ),
    _own("replaywatch_agent_cpu_seconds_total", "counter", "Processor time that the agent used."),
    _own("replaywatch_agent_resident_bytes", "gauge", "Resident memory of the agent."),
    _own(
        "replaywatch_collector_batches_total",
        "counter",
        "Batches received, by outcome.",
        "outcome",
        exposer="collector",
    ),
    _own("replaywatch_collector_info", "info", "Release of the collector.", "version", exposer="collector"),
    _own("replaywatch_collector_windows_total", "counter", "Windows stored.", exposer="collector"),
    _own(
        "replaywatch_collector_last_tick_timestamp_seconds",
        "gauge",
        "When the last detection tick ended; 0 before the first.",
        exposer="collector",
    ),
    _own(
        "replaywatch_collector_detection_seconds",
        "histogram",
        "Time of one detection tick over all workloads.",
        exposer="collector",
    ),
    _own("replaywatch_collector_workloads", "gauge", "Workloads seen lately.", exposer="collector"),
    _own(
        "replaywatch_collector_waiting_batches",
        "gauge",
        "Stored batches that detection has not taken in yet.",
        exposer="collector",
    ),
    _own(
        "replaywatch_collector_waiting_writes",
        "gauge",
        "Pieces of work that wait for the store.",
        exposer="collector",
    ),
    _own(
        "replaywatch_collector_clock_skew_seconds",
        "gauge",
        "Largest deviation of a sender's clock.",
        exposer="collector",
    ),
    _own(
        "replaywatch_collector_stage_up",
        "gauge",
        "1 while a stage works, 0 while it waits for the store or has ended.",
        "stage",
        exposer="collector",
    ),
    _own(
        "replaywatch_collector_incidents",
        "gauge",
        "Open incidents by severity.",
        "severity",
        exposer="collector",
    ),
    _own(
        "replaywatch_collector_notifications_total",
        "counter",
        "Notifications by destination and outcome.",
        "destination",
        "outcome",
        exposer="collector",
    ),
    _own(
        "replaywatch_collector_notifications_waiting",
        "gauge",
        "Notifications that are still to be delivered.",
        "destination",
        exposer="collector",
    ),
)
BY_NAME: Final = {metric.name: metric for metric in CATALOGUE}
# Counters whose samples carry the id of a workload as an exemplar, which leads from a graph to the workload's page.
EXEMPLIFIED: Final = frozenset(
    {
        "cudagraph_steps_total",
        "cudagraph_fallbacks_total",
        "cudagraph_captures_total",
        "cudagraph_failed_calls_total",
    }
)
