"""Rows of the collector's options about who is told, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from replaywatch.contract.options import Option
from replaywatch.notify.pagerduty import ENQUEUE_URL

_SEVERITIES: Final = ("info", "warn", "page")


def _least(destination: str, default: str) -> Option:
    text = f"Least severity that {destination} is told of."
    return Option(f"{destination}-severity", str, default, "", text, choices=_SEVERITIES)


NOTIFY_OPTIONS: Final = (
    _least("webhook", "info"),
    Option("slack-webhook-url", str, None, "", "Address of Slack's incoming webhook.", secret=True),
    Option("slack-webhook-url-file", Path, None, "", "File that holds it."),
    _least("slack", "warn"),
    Option("pagerduty-routing-key", str, None, "", "Integration key of PagerDuty's Events API v2.", secret=True),
    Option("pagerduty-routing-key-file", Path, None, "", "File that holds it."),
    Option("pagerduty-url", str, ENQUEUE_URL, "", "Where PagerDuty takes events; another in the EU region."),
    _least("pagerduty", "page"),
    Option("teams-webhook-url", str, None, "", "Address of a Microsoft Teams workflow.", secret=True),
    Option("teams-webhook-url-file", Path, None, "", "File that holds it."),
    _least("teams", "warn"),
    Option("alertmanager-url", str, None, "", "Address of an Alertmanager; open incidents are posted every minute."),
    _least("alertmanager", "warn"),
    Option("notify-per-minute", int, 30, "1/min", "Messages that one destination gets, on average.", 1, 10_000),
    Option("runbook-url", str, None, "", "Address of the documentation's folder, for links to alerts.md."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyOptions:
    """Settings of the rows above."""

    webhook_severity: str = "info"
    slack_webhook_url: str | None = field(default=None, repr=False)
    slack_webhook_url_file: Path | None = None
    slack_severity: str = "warn"
    pagerduty_routing_key: str | None = field(default=None, repr=False)
    pagerduty_routing_key_file: Path | None = None
    pagerduty_url: str = ENQUEUE_URL
    pagerduty_severity: str = "page"
    teams_webhook_url: str | None = field(default=None, repr=False)
    teams_webhook_url_file: Path | None = None
    teams_severity: str = "warn"
    alertmanager_url: str | None = None
    alertmanager_severity: str = "warn"
    notify_per_minute: int = 30
    runbook_url: str | None = None
