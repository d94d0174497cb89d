"""Connecting only to addresses of the public internet, whatever a name resolves to and whenever it changes.

A webhook address comes from configuration, but names can be made to point inside (a metadata service, a database on
loopback). The check is made on the very address that is connected to, so that a name which resolves differently the
second time wins nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

import httpcore
import httpx

# Addresses that IPv6 wraps around IPv4 ones: NAT64 and 6to4 would carry a private address past the check.
_WRAPPED: Final = tuple(ipaddress.ip_network(n) for n in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))


class AddressRefused(httpx.ConnectError):
    """The name leads to an address that is not public."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
        if any(ip in network for network in _WRAPPED):
            return False
    return ip.is_global and not ip.is_multicast


class GuardedBackend(httpcore.NetworkBackend):
    """Resolves a name, checks what comes out, and connects to exactly that."""

    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first public address of a host. Raises: AddressRefused, httpcore.ConnectError."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from None
        addresses = [str(row[4][0]) for row in found]
        if not addresses or not all(map(is_public, addresses)):
            raise AddressRefused("the address is not public; allow it with --webhook-allow-private")
        return self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options)


class GuardedTransport(httpx.HTTPTransport):
    """httpx's own transport over guarded connections."""

    def __init__(self) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False), network_backend=GuardedBackend()
        )


def webhook_client(timeout_seconds: float, *, allow_private: bool) -> httpx.Client:
    """A client for posting to webhooks; without the environment's proxies, which would resolve names themselves."""
    transport = httpx.HTTPTransport(trust_env=False) if allow_private else GuardedTransport()
    return httpx.Client(timeout=timeout_seconds, transport=transport, trust_env=False, follow_redirects=False)
