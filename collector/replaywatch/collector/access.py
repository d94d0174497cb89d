"""Who may do what: callers by their token, and whether a scope asks for one at all."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from replaywatch.collector.tokens import Scope, Token, TokenBook

COOKIE: Final = "replaywatch_token"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who shows a token, or nobody (`token` None). `by_cookie`: a browser showed it, perhaps unasked."""

    token: Token | None = None
    by_cookie: bool = False
    csrf: str = ""

    @property
    def name(self) -> str:
        """Name for the audit trail."""
        return self.token.name if self.token is not None else "anonymous"


NOBODY: Final = Caller()


class Access:
    """Decides by tokens of the store and, for batches, by the one token of the options.

    Batches and reading are open until a token with that scope exists. Changes always need a token: a page that is
    open on loopback must not be changed by any web site that a browser on the same machine visits.
    """

    def __init__(self, book: TokenBook, fixed_token: str | None = None) -> None:
        self._book = book
        self._fixed = None if fixed_token is None else _digest(fixed_token)
        self._fixed_as = Token(id="-", name="the configured token", scopes=("ingest",))

    def caller(self, connection: HTTPConnection) -> Caller:
        """Who a request comes from; nobody for a token that is not right."""
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Caller(self._known(text.strip()))
        cookie = connection.cookies.get(COOKIE, "")
        token = self._book.verify(cookie) if cookie else None
        return NOBODY if token is None else Caller(token, True, csrf_of(cookie))

    def allows(self, caller: Caller, scope: Scope) -> bool:
        """Whether a caller may do what a scope covers; those who may write may also read."""
        if caller.token is not None and scope in caller.token.scopes:
            return True
        if scope == "read" and caller.token is not None and "write" in caller.token.scopes:
            return True
        return not self.asks_for_token(scope)

    def asks_for_token(self, scope: Scope) -> bool:
        """Whether a scope is closed to nobody in particular."""
        if scope == "write":
            return True
        return self._book.has(scope) or (scope == "ingest" and self._fixed is not None)

    def verify(self, text: str) -> Token | None:
        """The token of the store that a text is."""
        return self._book.verify(text)

    def _known(self, text: str) -> Token | None:
        if self._fixed is not None and hmac.compare_digest(_digest(text), self._fixed):
            return self._fixed_as
        return self._book.verify(text)


def csrf_of(token_text: str) -> str:
    """What a form must carry beside the cookie: only a page of this collector can know it."""
    return hmac.new(token_text.encode(), b"replaywatch form", hashlib.sha256).hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
