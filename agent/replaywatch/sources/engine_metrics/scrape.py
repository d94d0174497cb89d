"""Fetches one page of metrics over HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import urlsplit

from replaywatch.contract.errors import ConfigurationError, UnreadableSource

MAX_PAGE_BYTES = 32 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An endpoint that points elsewhere is refused, so that nobody is led to an address that was not asked for."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def scrape(url: str, timeout_s: float, *, max_bytes: int = MAX_PAGE_BYTES) -> str:
    """The text of a /metrics page, at most 32 MiB; redirects and proxies are not followed.

    Raises: ConfigurationError for an address that is not http or https, UnreadableSource when nothing usable comes.
    """
    try:
        scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
    except ValueError as error:
        raise ConfigurationError(f"{url} is no address: {error}") from error
    if scheme not in ("http", "https") or not host:
        raise ConfigurationError(f"{url} is no address of metrics; give http://host:port/metrics")
    request = urllib.request.Request(url, headers={"Accept": "text/plain;version=0.0.4", "User-Agent": "replaywatch"})
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            body: bytes = response.read(max_bytes + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise UnreadableSource(f"{url} answered {error.code}; is /metrics switched on?") from error
    except (OSError, HTTPException, ValueError) as error:
        raise UnreadableSource(f"{url} cannot be read: {getattr(error, 'reason', None) or error}") from error
    if len(body) > max_bytes:
        raise UnreadableSource(f"{url} sent more than {max_bytes} bytes; is it a metrics page?")
    return body.decode("utf-8", errors="replace")
