"""How this process shows the bus who it is, and how it knows the bus: certificates, a user, a password or token."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from replaywatch.collector.options import CollectorOptions, secret_of
from replaywatch.contract.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class BusAccess:
    """What a connection to the bus needs beside addresses; a password without a user is a token."""

    tls: ssl.SSLContext | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def arguments(self) -> dict[str, Any]:
        """What the driver takes."""
        given: dict[str, Any] = {} if self.tls is None else {"tls": self.tls}
        if self.user is not None:
            return given | {"user": self.user, "password": self.password or ""}
        return given if self.password is None else given | {"token": self.password}


class GuardedClient(Client):
    """The driver's client, which tells nothing over a bare line where TLS was asked for.

    By itself nats-py (2.16) takes TLS as the server's wish only: a server, or somebody between, that does not ask for
    it gets user and password in the clear.
    """

    def _connect_command(self) -> bytes:
        if "tls" in self.options and not self._server_info.get("tls_required"):
            raise NatsError("the bus does not offer TLS, which the options ask for")
        return super()._connect_command()


def bus_access(options: CollectorOptions) -> BusAccess:
    """The access that the options describe. Raises: ConfigurationError."""
    password = secret_of(options.bus_password, options.bus_password_file, "password of the bus")
    if options.bus_user is not None and password is None:
        raise ConfigurationError("--bus-user needs a password; set --bus-password-file")
    return BusAccess(tls=_tls(options), user=options.bus_user, password=password)


def _tls(options: CollectorOptions) -> ssl.SSLContext | None:
    authority, certificate, key = options.bus_tls_ca, options.bus_tls_certificate, options.bus_tls_key
    if (certificate is None) != (key is None):
        raise ConfigurationError("a certificate for the bus needs both --bus-tls-certificate and --bus-tls-key")
    if authority is None and certificate is None and "tls://" not in (options.bus or ""):
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the certificates for the bus cannot be used ({_said(error)}); check {_paths(authority, certificate, key)}"
        ) from None
    return context


def _said(error: OSError) -> str:
    return error.strerror or getattr(error, "reason", None) or type(error).__name__


def _paths(*paths: Path | None) -> str:
    return ", ".join(str(p) for p in paths if p is not None)
