"""The webhook's table of options and its typed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.options import Option, settle

COMMAND = "admission"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")

OPTIONS: tuple[Option, ...] = (
    Option("host", str, "127.0.0.1", "", "Address to listen on; loopback unless told otherwise."),
    Option("port", int, 8443, "", "Port to listen on; 0 takes a free one.", 0, 65535),
    Option("tls-certificate", Path, None, "", "Certificate chain (PEM); Kubernetes speaks to webhooks over TLS only."),
    Option("tls-key", Path, None, "", "Private key (PEM) of the certificate."),
    Option("tls-look-seconds", float, 60.0, "s", "Time between two looks whether the certificate was renewed.", 0.01),
    Option("probe-image", str, None, "", "The image whose container fills a pod's volume with the probe."),
    Option("pull-policy", str, "IfNotPresent", "", "Pull policy of that image.", choices=PULL_POLICIES),
    Option("socket-folder", Path, Path("/run/replaywatch"), "", "Folder of the node that holds the agent's socket."),
    Option("socket-group", int, 65532, "", "Group that may write to the socket, added to the pod.", 0, 2**31 - 1),
)


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """Where the webhook serves, and what it adds to pods."""

    tls_certificate: Path
    tls_key: Path
    probe_image: str
    host: str = "127.0.0.1"
    port: int = 8443
    tls_look_seconds: float = 60.0
    pull_policy: str = "IfNotPresent"
    socket_folder: Path = Path("/run/replaywatch")
    socket_group: int = 65532


def settings(given: Mapping[str, object], environment: Mapping[str, str]) -> AdmissionOptions:
    """The options as given, else from the environment. Raises: ConfigurationError."""
    found = settle(AdmissionOptions, COMMAND, OPTIONS, given, environment)
    for option in OPTIONS:
        if option.name in ("tls-certificate", "tls-key", "probe-image") and getattr(found, option.field) is None:
            raise ConfigurationError(f"--{option.name} is missing: {option.help[0].lower()}{option.help[1:]}")
    return found
