"""One POST of a batch to the collector, and what its answer means."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import httpx

from replaywatch.agent.backoff import retry_after_s
from replaywatch.agent.options import AgentOptions
from replaywatch.agent.token import TokenFile
from replaywatch.contract.errors import ConfigurationError

Meaning = Literal["delivered", "rejected", "too_large", "retry"]
RetryReason = Literal[
    "", "unreachable", "timeout", "throttled", "server_error", "unauthorized", "misaddressed", "version"
]
PATH: Final = "/v1/batches"
CONNECT_SECONDS: Final = 5.0
MAX_ANSWER_BYTES: Final = 64 << 10
# These say that the request, not the batch, is wrong, so the batch is kept until somebody mends it.
_UNAUTHORIZED: Final = (401, 403, 407)
_MISADDRESSED: Final = (404, 405)
_LATER: Final = (408, 421, 425, 429)
# The collector does not speak this wire version; the answer says which it speaks. One of the two will be upgraded.
_VERSION: Final = 409


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one POST. Shape: `reason` for a retry, `detail` one line for the log, `asked_s` Retry-After."""

    meaning: Meaning
    reason: RetryReason = ""
    detail: str = ""
    asked_s: float | None = None


class Delivery:
    """A client of one collector. `clock` gives Unix seconds, `monotonic` seconds for the deadline of a request."""

    def __init__(self, options: AgentOptions, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        assert options.collector_url is not None
        self._url = collector_address(options.collector_url) + PATH
        self._token = TokenFile(options.token, options.token_file)
        self._request_s = options.request_seconds
        self._clock = clock
        self._monotonic = monotonic
        timeout = httpx.Timeout(options.request_seconds, connect=min(CONNECT_SECONDS, options.request_seconds))
        self._client = httpx.Client(verify=_trust(options), timeout=timeout, follow_redirects=False)

    def post(self, key: str, body: bytes) -> Outcome:
        """Send a gzip body once."""
        headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "Idempotency-Key": key,
            **self._token.header(),
        }
        deadline_s = self._monotonic() + self._request_s
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                text = self._answer_text(answer, deadline_s)
        except httpx.TimeoutException as error:
            return Outcome("retry", "timeout", type(error).__name__)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Outcome("retry", "unreachable", str(error) or type(error).__name__)
        return read_answer(answer.status_code, answer.headers.get("Retry-After"), text, self._clock())

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _answer_text(self, answer: httpx.Response, deadline_s: float) -> str:
        parts, size = [], 0
        for part in answer.iter_bytes():  # as they come, so that a trickle meets the deadline
            parts.append(part)
            size += len(part)
            if size >= MAX_ANSWER_BYTES:
                break
            if self._monotonic() > deadline_s:
                raise httpx.ReadTimeout("the answer comes too slowly")
        return b"".join(parts).decode(errors="replace")


def read_answer(status: int, retry_after: str | None, text: str, now_s: float) -> Outcome:
    """What an answer means for the batch."""
    detail = f"HTTP {status} {' '.join(text.split())[:200]}".rstrip()
    if 200 <= status < 300:
        return Outcome("delivered", detail=detail)
    if status == 413:
        return Outcome("too_large", detail=detail)
    asked_s = retry_after_s(retry_after, now_s)
    if status in _UNAUTHORIZED:
        return Outcome("retry", "unauthorized", detail, asked_s)
    if status in _MISADDRESSED or 300 <= status < 400:
        return Outcome("retry", "misaddressed", detail, asked_s)
    if status == _VERSION:
        return Outcome("retry", "version", detail, asked_s)
    if status in _LATER:
        return Outcome("retry", "throttled", detail, asked_s)
    if 400 <= status < 500:
        return Outcome("rejected", detail=detail)
    return Outcome("retry", "server_error", detail, asked_s)


def collector_address(url: str) -> str:
    """A collector's base address, checked. Raises: ConfigurationError."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"--collector-url cannot be {url[:200]!r}: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        raise ConfigurationError(f"--collector-url cannot be {url[:200]!r}: give http(s)://host:port")
    if parsed.userinfo:
        raise ConfigurationError("--collector-url must hold no password; give a token with --token-file")
    return url.rstrip("/")


def _trust(options: AgentOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.tls_ca_file)
        if options.tls_cert_file is not None:
            context.load_cert_chain(options.tls_cert_file, options.tls_key_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(f"the TLS files cannot be used ({error}); check --tls-ca-file and its like") from None
    return context
