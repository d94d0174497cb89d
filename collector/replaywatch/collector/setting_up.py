"""From options to what the stages take."""

from __future__ import annotations

from typing import Final

from replaywatch.collector.detection import DetectionSettings
from replaywatch.collector.hysteresis import Policy
from replaywatch.collector.options import CollectorOptions, secret_of
from replaywatch.collector.webhook import Links, Target, checked_url
from replaywatch.contract.verdict import SEVERITIES

NS: Final = 10**9


def ns(seconds: float) -> int:
    """Seconds as nanoseconds."""
    return int(seconds * NS)


def token_of(options: CollectorOptions) -> str | None:
    """The bearer token. Raises: ConfigurationError."""
    return secret_of(options.token, options.token_file, "bearer token")


def target_of(options: CollectorOptions) -> Target | None:
    """Where incidents are posted; None when nowhere. Raises: ConfigurationError."""
    if options.webhook_url is None:
        return None
    secret = secret_of(options.webhook_secret, options.webhook_secret_file, "webhook secret")
    return Target(checked_url(options.webhook_url, "webhook-url"), secret)


def links_of(options: CollectorOptions, url: str) -> Links:
    """The addresses that messages carry. Raises: ConfigurationError."""
    public = options.public_url if options.public_url is not None else url
    dashboard = options.dashboard_url
    return Links(
        checked_url(public, "public-url").rstrip("/"),
        None if dashboard is None else checked_url(dashboard, "dashboard-url"),
    )


def detection_settings(options: CollectorOptions) -> DetectionSettings:
    """What the detection takes."""
    severity = next(s for s in SEVERITIES if s == options.open_severity)
    return DetectionSettings(
        horizon_ns=ns(options.horizon_seconds),
        stale_ns=ns(options.stale_seconds),
        gone_ns=ns(options.gone_hours * 3600),
        checkpoint_ns=ns(options.checkpoint_seconds),
        workloads_max=options.workloads_max,
        policy=Policy(severity, options.open_ticks, options.close_ticks),
    )
