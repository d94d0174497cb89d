"""The collector's table of options and its typed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from replaywatch.collector.notify_options import NOTIFY_OPTIONS, NotifyOptions
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.options import Option, settle

COMMAND = "collector"
_YEAR_HOURS = 24 * 366

OPTIONS: tuple[Option, ...] = (
    Option("host", str, "127.0.0.1", "", "Address to listen on; loopback unless told otherwise."),
    Option("port", int, 8790, "", "Port to listen on; 0 takes a free one.", 0, 65535),
    Option("store", str, "sqlite:///replaywatch.db", "", "Database: sqlite:///FILE or postgresql://USER@HOST/NAME."),
    Option("bus", str, None, "", "NATS servers (nats://HOST:PORT, several with commas); needs PostgreSQL."),
    Option("bus-user", str, None, "", "User on the bus; without one, the password is a token."),
    Option("bus-password", str, None, "", "Password or token for the bus.", secret=True),
    Option("bus-password-file", Path, None, "", "File that holds the password or token for the bus."),
    Option("bus-tls-ca", Path, None, "", "Certificates (PEM) one of which must have signed the bus's; turns TLS on."),
    Option("bus-tls-certificate", Path, None, "", "Certificate (PEM) that is shown to the bus (mutual TLS)."),
    Option("bus-tls-key", Path, None, "", "Private key (PEM) of that certificate."),
    Option("role", str, "all", "", "With a bus: what this process does.", choices=("all", "ingest", "worker")),
    Option("partitions", int, 16, "", "With a bus: shares of the fleet that workers divide; fixed once used.", 1, 1024),
    Option("cohort-spread", int, 1, "", "With a bus: shares that one model's workloads are spread over.", 1, 1024),
    Option("tick-seconds", float, 5.0, "s", "Time between two detection ticks.", 0.01, 3600),
    Option("horizon-seconds", float, 120.0, "s", "How far back the recent evidence of a workload reaches.", 1, 86400),
    Option("stale-seconds", float, 60.0, "s", "Silence after which a workload is stale.", 0.01, 86400),
    Option("gone-hours", float, 6.0, "h", "Silence after which a workload is gone and its incidents end.", 0.001),
    Option(
        "open-severity", str, "warn", "", "Least severity that opens an incident.", choices=("info", "warn", "page")
    ),
    Option(
        "open-ticks", int, 2, "ticks", "Ticks that a finding must hold before its incident opens or rises.", 1, 1000
    ),
    Option("close-ticks", int, 6, "ticks", "Ticks without the finding before its incident closes or sinks.", 1, 1000),
    Option(
        "retention-hours",
        float,
        72.0,
        "h",
        "Age at which windows are deleted (on PostgreSQL by whole days).",
        0.01,
        _YEAR_HOURS,
    ),
    Option(
        "hour-retention-hours",
        float,
        2160.0,
        "h",
        "Age at which the hourly sums of windows are deleted.",
        1,
        10 * _YEAR_HOURS,
    ),
    Option(
        "incident-retention-hours",
        float,
        2160.0,
        "h",
        "Age at which closed incidents are deleted.",
        1,
        10 * _YEAR_HOURS,
    ),
    Option("checkpoint-seconds", float, 30.0, "s", "Time between two checkpoints of workload lifetimes.", 0.01, 3600),
    Option("head-seconds", float, 10.0, "s", "Time within which the head of a request must have come.", 0.05, 3600),
    Option("body-max-bytes", int, 8 << 20, "B", "Largest body that is accepted.", 1024, 1 << 30),
    Option("inflated-max-bytes", int, 64 << 20, "B", "Largest body after decompression.", 1024, 1 << 32),
    Option(
        "waiting-batches-max",
        int,
        256,
        "batches",
        "Batches that may wait for the store; more are sent away.",
        1,
        1 << 20,
    ),
    Option(
        "workloads-max", int, 20000, "workloads", "Workloads that are kept in sight; more are sent away.", 1, 1 << 24
    ),
    Option("token", str, None, "", "Bearer token that senders of batches must show.", secret=True),
    Option("token-file", Path, None, "", "File that holds the bearer token."),
    Option("tls-certificate", Path, None, "", "Certificate chain (PEM) to serve HTTPS with."),
    Option("tls-key", Path, None, "", "Private key (PEM) of the certificate."),
    Option(
        "tls-client-ca", Path, None, "", "Certificates (PEM) one of which must have signed a client's (mutual TLS)."
    ),
    Option("group-wait-seconds", float, 15.0, "s", "How long an opening waits for others of its group.", 0, 3600),
    Option("group-again-seconds", float, 1800.0, "s", "Time before a grown group is told again.", 0, 7 * 86400),
    Option("agent-silent-seconds", float, 300.0, "s", "Silence of a whole node that becomes an incident.", 0.01, 86400),
    Option("webhook-allow-private", bool, False, "", "Post webhooks to loopback and private addresses too."),
    Option("webhook-url", str, None, "", "Where incidents are posted as JSON."),
    Option("webhook-secret", str, None, "", "Key that signs what is posted (HMAC-SHA256).", secret=True),
    Option("webhook-secret-file", Path, None, "", "File that holds the signing key."),
    *NOTIFY_OPTIONS,
    Option("otlp-endpoint", str, None, "", "OpenTelemetry collector that metrics are sent to, http://HOST:4318."),
    Option("otlp-seconds", float, 15.0, "s", "Time between two sendings over OTLP.", 0.1, 3600),
    Option("public-url", str, None, "", "Address of this collector as people reach it, for links."),
    Option("dashboard-url", str, None, "", "Address of a dashboard, carried in notifications."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions(NotifyOptions):
    """Settings of one collector; one field per row of OPTIONS, with its default."""

    host: str = "127.0.0.1"
    port: int = 8790
    store: str = "sqlite:///replaywatch.db"
    bus: str | None = None
    bus_user: str | None = None
    bus_password: str | None = field(default=None, repr=False)
    bus_password_file: Path | None = None
    bus_tls_ca: Path | None = None
    bus_tls_certificate: Path | None = None
    bus_tls_key: Path | None = None
    role: str = "all"
    partitions: int = 16
    cohort_spread: int = 1
    tick_seconds: float = 5.0
    horizon_seconds: float = 120.0
    stale_seconds: float = 60.0
    gone_hours: float = 6.0
    open_severity: str = "warn"
    open_ticks: int = 2
    close_ticks: int = 6
    retention_hours: float = 72.0
    hour_retention_hours: float = 2160.0
    incident_retention_hours: float = 2160.0
    checkpoint_seconds: float = 30.0
    head_seconds: float = 10.0
    body_max_bytes: int = 8 << 20
    inflated_max_bytes: int = 64 << 20
    waiting_batches_max: int = 256
    workloads_max: int = 20000
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    group_wait_seconds: float = 15.0
    group_again_seconds: float = 1800.0
    agent_silent_seconds: float = 300.0
    webhook_allow_private: bool = False
    webhook_url: str | None = None
    webhook_secret: str | None = field(default=None, repr=False)
    webhook_secret_file: Path | None = None
    otlp_endpoint: str | None = None
    otlp_seconds: float = 15.0
    public_url: str | None = None
    dashboard_url: str | None = None


def settings(given: Mapping[str, object], environment: Mapping[str, str]) -> CollectorOptions:
    """The settings from parsed arguments and the environment. Raises: ConfigurationError."""
    return settle(CollectorOptions, COMMAND, OPTIONS, given, environment)


def secret_of(value: str | None, file: Path | None, what: str) -> str | None:
    """A secret from its value or its file, without surrounding space; None when neither is set.

    Raises: ConfigurationError, without the secret, when the file cannot be read or the secret is empty.
    """
    if value is None and file is None:
        return None
    if value is None and file is not None:
        try:
            value = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the {what} cannot be read from {file} ({type(error).__name__})") from None
    secret = (value or "").strip()
    if not secret:
        raise ConfigurationError(f"the {what} is empty; unset the option to go without it")
    return secret
