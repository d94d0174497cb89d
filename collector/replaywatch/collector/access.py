"""Who may send batches: those who show the bearer token, where one is set."""

from __future__ import annotations

import hashlib
import hmac


class Access:
    """Compares bearer tokens by digest, in constant time; the token itself is not kept."""

    def __init__(self, token: str | None) -> None:
        self._digest = None if token is None else _digest(token)

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self._digest is None

    def allows(self, authorization: str | None) -> bool:
        """Whether an Authorization header is good enough."""
        if self._digest is None:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(_digest(token.strip()), self._digest)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
