"""From options to the destinations that people are told through."""

from __future__ import annotations

from replaywatch.collector.options import CollectorOptions, secret_of
from replaywatch.collector.webhook import checked_url
from replaywatch.contract.verdict import SEVERITIES, Severity
from replaywatch.notify.alertmanager import Alertmanager
from replaywatch.notify.destination import Destination
from replaywatch.notify.pagerduty import PagerDuty
from replaywatch.notify.signed_json import SignedJson
from replaywatch.notify.slack import Slack
from replaywatch.notify.teams import Teams


def destinations_of(options: CollectorOptions) -> tuple[Destination, ...]:
    """Those that are configured. Raises: ConfigurationError, without a secret."""
    o = options
    found: list[Destination] = []
    if o.webhook_url is not None:
        secret = secret_of(o.webhook_secret, o.webhook_secret_file, "webhook secret")
        found.append(SignedJson(checked_url(o.webhook_url, "webhook-url"), secret, _least(o.webhook_severity)))
    slack = secret_of(o.slack_webhook_url, o.slack_webhook_url_file, "address of Slack's webhook")
    if slack is not None:
        found.append(Slack(checked_url(slack, "slack-webhook-url"), _least(o.slack_severity)))
    key = secret_of(o.pagerduty_routing_key, o.pagerduty_routing_key_file, "routing key of PagerDuty")
    if key is not None:
        found.append(PagerDuty(key, checked_url(o.pagerduty_url, "pagerduty-url"), _least(o.pagerduty_severity)))
    teams = secret_of(o.teams_webhook_url, o.teams_webhook_url_file, "address of the Teams workflow")
    if teams is not None:
        found.append(Teams(checked_url(teams, "teams-webhook-url"), _least(o.teams_severity)))
    if o.alertmanager_url is not None:
        url = checked_url(o.alertmanager_url, "alertmanager-url").rstrip("/")
        found.append(Alertmanager(url, _least(o.alertmanager_severity)))
    return tuple(found)


def _least(text: str) -> Severity:
    return next(s for s in SEVERITIES if s == text)
