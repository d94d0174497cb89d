"""The agent's options: one table makes its command line, environment, validation, help and docs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.options import Option, settle

COMMAND: Final = "agent"
# Among the exporters' 94xx ports, beside dcgm-exporter (9400) and away from OpenTelemetry's 9464, which others bind.
DEFAULT_LISTEN: Final = "127.0.0.1:9497"

OPTIONS: Final = (
    Option("socket", Path, None, "", "Unix datagram socket for probes; none: in XDG_RUNTIME_DIR, else /run"),
    Option("socket-group", str, None, "", "Group that may write to the socket beside the agent's own user"),
    Option("allow-uids", str, "", "", "Users heard beside the agent's own and root: 'any' or 1000,1001"),
    Option("frames-per-second", float, 100.0, "1/s", "Frames taken from one process, on average", 1, 100_000),
    Option("scope", str, "auto", "", "What the downward API describes: the watched pod or the node", choices=(
        "auto", "pod", "node")),
    Option("listen", str, DEFAULT_LISTEN, "host:port", "Address of /metrics and /healthz; port 0 picks one; or off"),
    Option("max-workloads", int, 256, "", "Workloads exposed in /metrics; more are counted, not shown", 1, 10_000),
    Option("stale-seconds", float, 300.0, "s", "Silence after which a workload leaves /metrics", 1, 86_400),
    Option("collector-url", str, None, "", "Base address of the collector; none: nothing is shipped or spooled"),
    Option("token", str, None, "", "Bearer token for the collector", secret=True),
    Option("token-file", Path, None, "", "File with the bearer token, read again when it changes"),
    Option("tls-ca-file", Path, None, "", "Certificates that the collector's must be signed by"),
    Option("tls-cert-file", Path, None, "", "Certificate of this agent, for mutual TLS"),
    Option("tls-key-file", Path, None, "", "Key of that certificate"),
    Option("batch-seconds", float, 5.0, "s", "Age at which a batch is sealed and sent", 0.05, 300),
    Option("retry-max-seconds", float, 60.0, "s", "Longest pause between two tries", 0.05, 3600),
    Option("request-seconds", float, 30.0, "s", "Longest time for one request to the collector", 0.1, 600),
    Option("spool-dir", Path, None, "", "Folder of undelivered windows; none: in the state folder"),
    Option("spool-bytes", int, 256 << 20, "bytes", "Limit of the spool; the oldest is dropped", 1 << 16, 1 << 44),
    Option("memory-bytes", int, 4 << 20, "bytes", "Windows kept in memory while the disk refuses", 1 << 16, 1 << 30),
    Option("device-seconds", float, 15.0, "s", "Time between two readings of the devices; 0 turns them off", 0, 3600),
    Option("engine-metrics-url", str, None, "", "The engine's own /metrics, read as a second witness"),
    Option("engine-metrics-ca-file", Path, None, "", "Certificates that the one of the engine's /metrics is signed by"),
    Option("engine-metrics-token-file", Path, None, "", "File with the bearer token for the engine's /metrics"),
    Option("engine-log", Path, None, "", "The engine's log file, followed as a second witness"),
    Option("otlp-endpoint", str, None, "", "OpenTelemetry collector that metrics are sent to, http://HOST:4318"),
    Option("otlp-seconds", float, 15.0, "s", "Time between two sendings over OTLP", 0.1, 3600),
    Option("witness-seconds", float, 15.0, "s", "Time between two readings of the witnesses", 0.1, 3600),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The agent's settings, one field per row of OPTIONS."""

    socket: Path | None = None
    socket_group: str | None = None
    allow_uids: str = ""
    frames_per_second: float = 100.0
    scope: str = "auto"
    listen: str = DEFAULT_LISTEN
    max_workloads: int = 256
    stale_seconds: float = 300.0
    collector_url: str | None = None
    token: str | None = None
    token_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    batch_seconds: float = 5.0
    retry_max_seconds: float = 60.0
    request_seconds: float = 30.0
    spool_dir: Path | None = None
    spool_bytes: int = 256 << 20
    memory_bytes: int = 4 << 20
    device_seconds: float = 15.0
    engine_metrics_url: str | None = None
    engine_metrics_ca_file: Path | None = None
    engine_metrics_token_file: Path | None = None
    engine_log: Path | None = None
    otlp_endpoint: str | None = None
    otlp_seconds: float = 15.0
    witness_seconds: float = 15.0


def agent_options(given: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> AgentOptions:
    """The settings from a parsed command line and the environment. Raises: ConfigurationError."""
    return settle(AgentOptions, COMMAND, OPTIONS, given, environment)


def socket_path(options: AgentOptions, environment: Mapping[str, str] = os.environ) -> Path:
    """Where probes find the agent: as given, else under XDG_RUNTIME_DIR, else under /run."""
    if options.socket is not None:
        return options.socket
    return Path(environment.get("XDG_RUNTIME_DIR") or "/run") / "replaywatch" / "agent.sock"


def spool_folder(options: AgentOptions, environment: Mapping[str, str] = os.environ) -> Path:
    """Where undelivered windows are kept: as given, else systemd's or the user's state folder."""
    if options.spool_dir is not None:
        return options.spool_dir
    if given := environment.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0]) / "spool"
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME") or "/var/lib") / ".local/state")
    return Path(state) / "replaywatch" / "spool"


def listen_address(options: AgentOptions) -> tuple[str, int] | None:
    """Host and port of /metrics; None when it is off. Raises: ConfigurationError."""
    if options.listen == "off":
        return None
    host, colon, port = options.listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--listen cannot be {options.listen!r}: give host:port, such as {DEFAULT_LISTEN}")
    return host.strip("[]") or "127.0.0.1", int(port)


def allowed_uids(options: AgentOptions) -> frozenset[int] | None:
    """Users whose frames are taken; None for any. Raises: ConfigurationError."""
    if options.allow_uids == "any":
        return None
    texts = [t.strip() for t in options.allow_uids.split(",") if t.strip()]
    if not all(t.isdecimal() for t in texts):
        raise ConfigurationError(f"--allow-uids cannot be {options.allow_uids!r}: give 'any' or numbers, 1000,1001")
    return frozenset({os.geteuid(), 0, *map(int, texts)})
