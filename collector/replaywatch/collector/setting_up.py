"""From options to what the stages take."""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from replaywatch.collector.detection import DetectionSettings
from replaywatch.collector.hysteresis import Policy
from replaywatch.collector.options import CollectorOptions, secret_of
from replaywatch.collector.recording import Message, Telling
from replaywatch.collector.retention import Ages
from replaywatch.collector.webhook import Links, checked_url
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.verdict import SEVERITIES

NS: Final = 10**9
LOOPBACK: Final = ("127.", "::1", "localhost")


def ns(seconds: float) -> int:
    """Seconds as nanoseconds."""
    return int(seconds * NS)


def token_of(options: CollectorOptions) -> str | None:
    """The bearer token. Raises: ConfigurationError."""
    return secret_of(options.token, options.token_file, "bearer token")


def links_of(options: CollectorOptions, url: str) -> Links:
    """The addresses that messages carry. Raises: ConfigurationError."""
    public = options.public_url if options.public_url is not None else url
    dashboard = options.dashboard_url
    return Links(
        checked_url(public, "public-url").rstrip("/"),
        None if dashboard is None else checked_url(dashboard, "dashboard-url"),
        None if options.runbook_url is None else checked_url(options.runbook_url, "runbook-url"),
    )


def detection_settings(options: CollectorOptions) -> DetectionSettings:
    """What the detection takes."""
    severity = next(s for s in SEVERITIES if s == options.open_severity)
    return DetectionSettings(
        horizon_ns=ns(options.horizon_seconds),
        stale_ns=ns(options.stale_seconds),
        gone_ns=ns(options.gone_hours * 3600),
        checkpoint_ns=ns(options.checkpoint_seconds),
        agent_silent_ns=ns(options.agent_silent_seconds),
        workloads_max=options.workloads_max,
        policy=Policy(severity, options.open_ticks, options.close_ticks),
    )


def ages_of(options: CollectorOptions) -> Ages:
    """How old things may become."""
    return Ages(
        windows_ns=ns(options.retention_hours * 3600),
        hours_ns=ns(options.hour_retention_hours * 3600),
        incidents_ns=ns(options.incident_retention_hours * 3600),
    )


def telling_of(options: CollectorOptions, message: Message | None) -> Telling:
    """How people are told."""
    return Telling(message=message, wait_ns=ns(options.group_wait_seconds), again_ns=ns(options.group_again_seconds))


def hosts_of(options: CollectorOptions) -> tuple[str, ...]:
    """Names by which the collector may be called.

    On loopback only its own: a web site whose name was made to lead there must not read through a visitor's browser.
    """
    if not options.host.startswith(LOOPBACK):
        return ("*",)
    public = urlsplit(options.public_url or "").hostname
    return ("localhost", "127.0.0.1", "[::1]", options.host, *([public] if public else []))


def tls_of(options: CollectorOptions) -> dict[str, Any]:
    """What uvicorn takes to serve HTTPS; nothing without a certificate. Raises: ConfigurationError."""
    certificate, key, authority = options.tls_certificate, options.tls_key, options.tls_client_ca
    if certificate is None and key is None and authority is None:
        return {}
    if certificate is None or key is None:
        raise ConfigurationError("HTTPS needs both --tls-certificate and --tls-key")
    for path in (certificate, key, authority):
        if path is not None and not path.is_file():
            raise ConfigurationError(f"there is no file {path}; check --tls-certificate, --tls-key and --tls-client-ca")
    given: dict[str, Any] = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
    if authority is not None:
        given |= {"ssl_ca_certs": str(authority), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return given
