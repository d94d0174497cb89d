"""All rules, and their file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import yaml

from replaywatch.dashboards.burn import burn_alerts, burn_records
from replaywatch.dashboards.finding_alerts import finding_alerts
from replaywatch.dashboards.health_alerts import health_alerts
from replaywatch.dashboards.recoverable import recoverable_alerts, recoverable_records
from replaywatch.dashboards.rule import Alert, Group, Record, RuleSettings
from replaywatch.detectors.catalogue import DETECTORS
from replaywatch.detectors.detector import Detector

HEADER: Final = (
    "# Made from the metric catalogue and the detectors; change those and run `replaywatch dashboards export`.\n"
    "# Needs Prometheus 2.42 or later (keep_firing_for).\n"
)


def groups(settings: RuleSettings | None = None, detectors: Iterable[Detector] = DETECTORS) -> tuple[Group, ...]:
    """Recording rules first, since alerts build on them."""
    s = settings or RuleSettings()
    return (
        Group(name="replaywatch-recoverable", interval=s.interval, rules=recoverable_records()),
        Group(name="replaywatch-burn", interval=s.interval, rules=(*burn_records(), *burn_alerts(s))),
        Group(name="replaywatch-findings", interval=s.interval, rules=finding_alerts(detectors, s)),
        Group(name="replaywatch-cost", interval=s.interval, rules=recoverable_alerts(s)),
        Group(name="replaywatch-health", interval=s.interval, rules=health_alerts(s)),
    )


def alerts(settings: RuleSettings | None = None) -> tuple[Alert, ...]:
    """Every alert, in the order of the file."""
    return tuple(rule for group in groups(settings) for rule in group.rules if isinstance(rule, Alert))


def rules_document(settings: RuleSettings | None = None) -> dict[str, object]:
    """The file's content; a PrometheusRule resource of Kubernetes has the same under `spec`."""
    s = settings or RuleSettings()
    return {
        "groups": [
            {"name": g.name, "interval": g.interval, "rules": [_rule(rule, s) for rule in g.rules]} for g in groups(s)
        ]
    }


def rules_text(settings: RuleSettings | None = None) -> str:
    """The rule file."""
    text: str = yaml.dump(rules_document(settings), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return HEADER + text


def runbook_url(settings: RuleSettings, alert: str) -> str:
    """Where to read what an alert means and what to do."""
    return f"{settings.runbooks.rstrip('/')}/alerts.md#{alert.lower()}"


def _rule(rule: Record | Alert, settings: RuleSettings) -> dict[str, object]:
    if isinstance(rule, Record):
        return {"record": rule.name, "expr": rule.expr}
    document: dict[str, object] = {"alert": rule.name, "expr": rule.expr, "for": rule.hold}
    if rule.keep is not None:
        document["keep_firing_for"] = rule.keep
    document["labels"] = {**rule.labels, "severity": rule.severity}
    document["annotations"] = {
        "summary": rule.summary,
        "description": rule.description,
        "runbook_url": runbook_url(settings, rule.name),
    }
    return document


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, as people and other generators write rule files."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)
