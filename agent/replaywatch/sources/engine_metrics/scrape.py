"""Fetches one page of metrics over HTTP."""

from __future__ import annotations

import math
import socket
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTP_PORT, HTTPS_PORT, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Timer
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from replaywatch.contract.errors import ConfigurationError, UnreadableSource

MAX_PAGE_BYTES = 32 << 20
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "User-Agent": "replaywatch"}
_GZIP = 31  # what zlib calls a gzip container
_NONE: Mapping[str, str] = MappingProxyType({})


def scrape(
    url: str,
    timeout_s: float,
    *,
    max_bytes: int = MAX_PAGE_BYTES,
    headers: Mapping[str, str] = _NONE,
    tls: ssl.SSLContext | None = None,
) -> str:
    """The text of a /metrics page, at most 32 MiB; redirects and proxies are not followed.

    Units: `timeout_s` is for the whole page once a connection stands, and for each try to make one.

    Raises: ConfigurationError for an address that is not http or https, UnreadableSource when nothing usable comes.
    """
    address = _address(url)
    connection = _connection(address, timeout_s, tls)
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    deadline_s = math.inf
    try:
        connection.connect()
        deadline_s = time.monotonic() + timeout_s
        with _cut_at(deadline_s, connection.sock):
            connection.request("GET", target, headers={**_HEADERS, **headers})
            response = connection.getresponse()
            body = response.read(max_bytes + 1)
    except (OSError, HTTPException, ValueError) as error:
        reason = _too_long(timeout_s) if time.monotonic() >= deadline_s else str(error) or type(error).__name__
        raise UnreadableSource(f"{url} cannot be read: {reason}") from error
    finally:
        connection.close()
    if time.monotonic() >= deadline_s:  # a body without a length that was cut looks whole
        raise UnreadableSource(f"{url} cannot be read: {_too_long(timeout_s)}")
    return _text(response, body, url, max_bytes)


def _address(url: str) -> SplitResult:
    if "@" in url:  # a malformed address is taken apart in other places: any part before it can be a password
        raise ConfigurationError(
            "the address of metrics must hold no password; give a token in a file, and write any other @ as %40"
        )
    try:
        address = urlsplit(url)
        _ = address.port  # raises where it is no number
    except ValueError as error:
        raise ConfigurationError(f"{url} is no address: {error}") from error
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigurationError(f"{url} is no address of metrics; give http://host:port/metrics")
    return address


def _connection(address: SplitResult, timeout_s: float, tls: ssl.SSLContext | None) -> HTTPConnection:
    """A connection not made yet; its port is always given, as one that is not is sought in an IPv6 address."""
    host = address.hostname or ""
    if address.scheme == "http":
        return HTTPConnection(host, address.port or HTTP_PORT, timeout=timeout_s)
    tls = tls or ssl.create_default_context()
    return HTTPSConnection(host, address.port or HTTPS_PORT, timeout=timeout_s, context=tls)


@contextmanager
def _cut_at(deadline_s: float, sock: socket.socket) -> Iterator[None]:
    """End a conversation at a deadline: the timeout of a socket begins anew with every byte that drips in."""

    def cut() -> None:
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not SSLSocket's: it lets go of what the reader uses

    timer = Timer(deadline_s - time.monotonic(), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _too_long(timeout_s: float) -> str:
    return f"it took longer than {timeout_s:g} s"


def _text(response: HTTPResponse, body: bytes, url: str, max_bytes: int) -> str:
    if not 200 <= response.status < 300:
        raise UnreadableSource(f"{url} answered {response.status}; is /metrics switched on?")
    if len(body) > max_bytes:
        raise _too_large(url, max_bytes)
    if response.length:
        raise UnreadableSource(f"{url} ended {response.length} bytes before its end; is the engine going down?")
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        body = _unzipped(body, url, max_bytes)
    elif encoding != "identity":
        raise UnreadableSource(f"{url} is compressed as {encoding!r}, which was not asked for and is not read here")
    return body.decode("utf-8", errors="replace")


def _unzipped(body: bytes, url: str, max_bytes: int) -> bytes:
    """The content of a gzip body, which some proxies send unasked."""
    unzip = zlib.decompressobj(_GZIP)
    try:
        text = unzip.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise UnreadableSource(f"{url} sent damaged gzip: {error}") from error
    if len(text) > max_bytes:
        raise _too_large(url, max_bytes)
    if not unzip.eof:
        raise UnreadableSource(f"{url} sent gzip that ends before its end; is the engine going down?")
    return text


def _too_large(url: str, max_bytes: int) -> UnreadableSource:
    return UnreadableSource(f"{url} sent more than {max_bytes} bytes; is it a metrics page?")
