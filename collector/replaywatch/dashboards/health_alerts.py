"""Alerts on Replaywatch itself: who watches the watcher. Silence, drops and cost of every stage."""

from __future__ import annotations

from replaywatch.dashboards.promql import TARGET, WORKLOAD
from replaywatch.dashboards.rule import Alert, AlertSeverity, RuleSettings


def health_alerts(settings: RuleSettings) -> tuple[Alert, ...]:
    """The alerts, agents first."""
    return (*_agent_alerts(settings), *_probe_alerts(settings), *_collector_alerts(settings))


def _alert(
    settings: RuleSettings,
    name: str,
    expr: str,
    severity: AlertSeverity,
    summary: str,
    meaning: str,
    action: str,
    hold: str | None = None,
) -> Alert:
    return Alert(
        name=name,
        expr=expr,
        hold=hold or settings.pause,
        severity=severity,
        labels={"family": "health"},
        summary=summary,
        description=meaning,
        meaning=meaning,
        action=action,
    )


def _down(info: str) -> str:
    """A scrape fails of a target that had shown an info series within a day: no name of a job is assumed."""
    return f"up == 0 and on ({TARGET}) (count by ({TARGET}) (count_over_time({info}[1d])))"


def _agent_alerts(s: RuleSettings) -> tuple[Alert, ...]:
    at = "{{ $labels.instance }}"
    return (
        _alert(
            s,
            "ReplaywatchAgentDown",
            _down("replaywatch_agent_info"),
            "warning",
            f"The agent at {at} does not answer",
            "The target is still discovered but cannot be scraped; its node is not watched.",
            "See the agent's log and /healthz. The serving processes are not affected: probes drop and count.",
        ),
        _alert(
            s,
            "ReplaywatchNoAgents",
            "absent(replaywatch_agent_info) and on () (count(present_over_time(replaywatch_agent_info[1d])) > 0)",
            "critical",
            "No agent answers any more",
            "There were agents within a day and there is none now; nothing is watched.",
            "See whether the agents' workload was removed, or Prometheus no longer discovers it.",
        ),
        _alert(
            s,
            "ReplaywatchAgentCannotDeliver",
            "replaywatch_agent_oldest_window_seconds > 300",
            "warning",
            f"The agent at {at} cannot deliver windows",
            "The oldest window waits for more than five minutes, so verdicts are late or missing.",
            "replaywatch_agent_retries_total says why: unreachable, unauthorized, throttled or an error of the server.",
        ),
        _alert(
            s,
            "ReplaywatchWindowsDropped",
            "increase(replaywatch_agent_windows_dropped_total[10m]) > 0",
            "warning",
            f"The agent at {at} drops windows",
            "The spool is full, so the oldest windows are thrown away.",
            "Bring the collector back, or raise --spool-bytes.",
            hold="0s",
        ),
        _alert(
            s,
            "ReplaywatchFramesRefused",
            'sum by (job, instance, outcome) (rate(replaywatch_agent_frames_total{outcome!~"accepted|duplicate"}[10m]))'
            " > 0.1",
            "warning",
            f"The agent at {at} refuses frames: {{{{ $labels.outcome }}}}",
            "Probes send what the agent does not take: another version, a foreign user, too many, or damaged.",
            "Use one release for probe and agent; for foreign_user set --allow-uids, for limited --frames-per-second.",
        ),
        _alert(
            s,
            "ReplaywatchWorkloadsHidden",
            "increase(replaywatch_agent_hidden_windows_total[10m]) > 0",
            "info",
            f"The agent at {at} does not show all workloads",
            "More workloads than --max-workloads send windows; the others are judged, but not in this agent's metrics.",
            "Raise --max-workloads, and mind the series it adds.",
        ),
        _alert(
            s,
            "ReplaywatchGpuUnwatched",
            "max by (UUID, Hostname, hostname, namespace, pod) (DCGM_FI_DEV_GPU_UTIL > 20)"
            " unless on (UUID) count by (UUID) (cudagraph_verdict)",
            "info",
            "GPU {{ $labels.UUID }} works and is not watched",
            "dcgm-exporter sees a busy GPU from which no workload is judged.",
            "Give the serving processes on it the probe, or accept that they are not watched.",
            hold="30m",
        ),
    )


def _probe_alerts(s: RuleSettings) -> tuple[Alert, ...]:
    at = "{{ $labels.instance }}"
    return (
        _alert(
            s,
            "ReplaywatchProbeFramesDropped",
            "rate(replaywatch_probe_frames_dropped_total[10m]) > 0.05",
            "warning",
            f"Probes at {at} drop frames",
            "The agent's socket does not take frames as fast as probes send them; counts have holes.",
            "See whether the agent is starved of processor time.",
        ),
        _alert(
            s,
            "ReplaywatchProbeErrors",
            "increase(replaywatch_probe_errors_total[1h]) > 0",
            "warning",
            f"A probe at {at} disabled a hook after a fault",
            "The served process goes on; a signal is missing from now on.",
            "`replaywatch doctor` and the served process's log say which hook, and why.",
            hold="0s",
        ),
        _alert(
            s,
            "ReplaywatchProbeCostly",
            f"rate(replaywatch_probe_hook_seconds_total[10m])"
            f" / on ({TARGET}) (replaywatch_agent_processes > 0) > 0.005",
            "warning",
            f"Probes at {at} cost more than 0.5 % of the host's time",
            "A probe slows itself down at half a percent, but it tells each of an engine's steps, and these are short.",
            "Where they are not, report it with the engine's version; REPLAYWATCH_PROBE=0 leaves the process alone.",
        ),
        _alert(
            s,
            "ReplaywatchWorkloadBlind",
            f'max by ({WORKLOAD}) (cudagraph_verdict{{verdict="blind"}}) == 1',
            "info",
            "{{ $labels.namespace }}/{{ $labels.pod }} cannot be judged",
            "The signals that a verdict needs are not there. It is not known to be healthy.",
            "The workload's page says what is missing and what would bring it.",
            hold="30m",
        ),
    )


def _collector_alerts(s: RuleSettings) -> tuple[Alert, ...]:
    at = "{{ $labels.instance }}"
    return (
        _alert(
            s,
            "ReplaywatchCollectorDown",
            _down("replaywatch_collector_info"),
            "critical",
            f"The collector at {at} does not answer",
            "Nothing is judged, and nobody is told of anything but this.",
            "See its log and /readyz. Agents keep windows meanwhile and deliver them later.",
        ),
        _alert(
            s,
            "ReplaywatchDetectionStuck",
            "time() - replaywatch_collector_last_tick_timestamp_seconds > 120",
            "critical",
            f"The collector at {at} does not judge any more",
            "No detection tick has ended for two minutes; verdicts on pages and in metrics are old.",
            "See the collector's log; a store that refuses writes holds ticks back.",
            hold="1m",
        ),
        _alert(
            s,
            "ReplaywatchBatchesRefused",
            "sum by (job, instance, outcome)"
            ' (rate(replaywatch_collector_batches_total{outcome!~"accepted|duplicate"}[10m])) > 0.1',
            "warning",
            f"The collector at {at} refuses batches: {{{{ $labels.outcome }}}}",
            "Agents cannot deliver: wrong token, too large, another version, or a store that is behind.",
            "unauthorized: compare tokens. busy: the store is too slow. refused: use one release on both sides.",
        ),
        _alert(
            s,
            "ReplaywatchNotificationsDead",
            'increase(replaywatch_collector_notifications_total{outcome="dead"}[1h]) > 0',
            "warning",
            "Notifications to {{ $labels.destination }} were given up",
            "A receiver refused for good, or did not take a message in twenty attempts.",
            "GET /v1/notifications?state=dead shows them with the receiver's answer; `replaywatch notify test` tries "
            "the destination.",
            hold="0s",
        ),
    )
