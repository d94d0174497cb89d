"""Pages of the documentation that are made from data: the reference of metrics and the runbooks of alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from replaywatch.contract.metrics import CATALOGUE, EXEMPLIFIED, WORKLOAD_LABELS, Metric
from replaywatch.contract.window import CAPTURE_OUTCOMES, FALLBACK_REASONS
from replaywatch.dashboards.families import INFORMING
from replaywatch.dashboards.finding_alerts import TOLD, alert_name
from replaywatch.dashboards.rule import Alert, Group, Record, RuleSettings
from replaywatch.dashboards.rules import groups

_INFORMING: Final = frozenset(map(alert_name, INFORMING))
# Counted by tests/dashboards/cardinality.py, rounded up.
POD_SERIES: Final = 330
POD_SERIES_WORST: Final = 450
COLLECTOR_SERIES: Final = 10
_METRICS_HEAD: Final = """# Metrics

Made from the catalogue in `replaywatch.contract.metrics`; `dashboards/generate.py` writes this page.

The agent answers at `http://127.0.0.1:9497/metrics`, the collector at `/metrics` of its own address. Durations are
seconds, sizes bytes, ratios 0 to 1; counters end in `_total`; series that only tell labels end in `_info` and are 1.

## Labels

Rows about workloads have these labels, empty where unknown: {labels}.

- `gpu` and `UUID` are spelled as dcgm-exporter spells them. Join on `UUID`:
  `cudagraph_device_busy_ratio * on (UUID) group_left () max by (UUID) (DCGM_FI_DEV_GPU_UTIL)`.
- `namespace`, `pod`, `container`, `model_name` are spelled as vLLM, SGLang and Kubernetes do. Join with vLLM on
  `namespace, pod, model_name`. Our `engine` is the engine's name; vLLM's is the index of its core, so leave it out.
- Prometheus renames these labels to `exported_pod` and so on where a scrape sets its own. Scrape with
  `honor_labels: true` (`honorLabels` in a ServiceMonitor), as for dcgm-exporter.
- The node is a label of `cudagraph_workload_info` and `replaywatch_agent_info`; join to get it.

Values of other labels are closed sets. `mode`: full, piecewise, eager, other. `outcome` of captures: {outcomes}.
`reason`: {reasons}. `error`: at most 32 names of CUDA errors for each workload, the rest is `other`. There are no
kernel names, no ids of graphs and no free text in labels.

## Histograms

Buckets are powers of two, in nanoseconds shown as seconds, so that the log-bucket histograms inside convert exactly.
They are classic histograms. prometheus-client 0.26 can write native ones only in the OpenMetrics 2.0 text draft, and
the servers that were at hand scrape native histograms only as protobuf, which it cannot write; so none are exposed.

## Exemplars

Where the scraper asks for OpenMetrics, as Prometheus does, samples of {exemplified} carry an exemplar: the id of the
workload whose window last added to them, by which the collector's page knows it (`/workloads/ID`), with what the window
added and its end. Start Prometheus with `--enable-feature=exemplar-storage`; the panels ask for exemplars, and the data
source of `replaywatch dashboards push --prometheus-url URL --page-url PAGE` makes them links. No request's trace id is
among them: what is counted arrives as sums over seconds. Histograms have none, because a sum has no value to show.

## OpenTelemetry

`--otlp-endpoint http://HOST:4318` makes agent and collector send the same metrics over OTLP (HTTP, protobuf) every
`--otlp-seconds`, beside `/metrics` or instead of it; `pip install 'replaywatch[otlp]'` brings what that needs. Names
lose `_total`, labels become attributes, empty ones are left out. An OpenTelemetry collector's Prometheus receiver that
scrapes `/metrics` does as well, and costs the agent no memory.

## Series of a fleet

A pod with one process on one device, in two phases, is at most {pod} series at its agent, and {worst} where every
closed set of labels is used up. The collector adds {collector} for each workload and phase, and one for each open
finding. `python tests/dashboards/cardinality.py --pods 1000` counts real expositions; a test holds these bounds. An
agent shows at most `--max-workloads` workloads.

"""
_ALERTS_HEAD: Final = """# Alerts

Made from the rules in `replaywatch.dashboards`; `dashboards/generate.py` writes this page and
`dashboards/rules/replaywatch.rules.yml`. Each alert's `runbook_url` leads to its heading here. `replaywatch dashboards
export FOLDER --runbooks https://...` makes rules that lead elsewhere.

Alerts on findings come from the collector's verdicts, so they have its judgement in them: an estimate of what is
lost, and silence where a service has nothing to win. `severity` is `critical` for findings that page and `warning`
for those that warn; findings that only inform raise no alert, but for two witnesses that disagree (`info`). Group by
`namespace, model_name, alertname`: a rollout that loses graphs on every replica is then one message.
`dashboards/rules/alertmanager.example.yml` does that.

"""


def metrics_page() -> str:
    """docs/metrics.md."""
    head = _METRICS_HEAD.format(
        labels=", ".join(f"`{label}`" for label in WORKLOAD_LABELS),
        outcomes=", ".join(CAPTURE_OUTCOMES),
        reasons=", ".join(FALLBACK_REASONS),
        exemplified=", ".join(f"`{m.name}`" for m in CATALOGUE if m.name in EXEMPLIFIED),
        pod=POD_SERIES,
        worst=POD_SERIES_WORST,
        collector=COLLECTOR_SERIES,
    )
    about_work = [m for m in CATALOGUE if m.scope == "workload"]
    about_us = [m for m in CATALOGUE if m.scope == "self"]
    recorded = [r for g in groups() for r in g.rules if isinstance(r, Record)]
    parts = [
        head,
        "## About workloads\n\n",
        _table(about_work),
        "\n## About Replaywatch itself\n\n",
        _table(about_us),
        "\n## Recorded by the rules\n\n| series | meaning |\n|---|---|\n",
        *(f"| `{r.name}` | {r.help} |\n" for r in recorded),
    ]
    return "".join(parts)


def alerts_page(settings: RuleSettings | None = None) -> str:
    """docs/alerts.md."""
    return _ALERTS_HEAD + "".join(_sections(groups(settings)))


def _table(metrics: Iterable[Metric]) -> str:
    rows = ["| metric | kind | from | labels | meaning |\n|---|---|---|---|---|\n"]
    for m in metrics:
        labels = ", ".join(f"`{label}`" for label in m.labels)
        rows.append(f"| `{m.name}` | {m.kind} | {m.exposer} | {labels} | {m.help} |\n")
    return "".join(rows)


def _sections(all_groups: Iterable[Group]) -> Iterator[str]:
    for group in all_groups:
        alerts = [rule for rule in group.rules if isinstance(rule, Alert)]
        if alerts:
            yield f"## {group.name.removeprefix('replaywatch-').capitalize()}\n\n"
            yield from map(_section, alerts)


def _section(alert: Alert) -> str:
    keep = f", goes on for {alert.keep} after" if alert.keep else ""
    return (
        f"### {alert.name}\n\n{alert.meaning}\n\n**What to do.** {alert.action}\n\n"
        f"Severity {_severity(alert)}; holds for {alert.hold}{keep}; family `{alert.labels['family']}`.\n\n"
        f"```promql\n{alert.expr}\n```\n\n"
    )


def _severity(alert: Alert) -> str:
    if "{{" not in alert.severity:
        return alert.severity
    if alert.name not in _INFORMING:
        return "critical or warning, as the finding"
    if alert.labels["family"] in TOLD:
        return "info"
    return "none yet: the findings only inform, so this alert stays silent, and incidents lead here"
