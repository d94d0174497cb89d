"""Tokens: made, listed and revoked in the store, which keeps a digest of each secret and never the secret.

A token reads ``rw_<id>_<secret>`` with 256 random bits in the secret, so a plain SHA-256 of it cannot be searched for
and needs no slow hash; digests are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from replaywatch.collector.audit import write_audit
from replaywatch.collector.store import Store
from replaywatch.collector.tables import TokenRow
from replaywatch.contract.errors import ConfigurationError

Scope = Literal["ingest", "read", "write"]
SCOPES: Final[tuple[Scope, ...]] = ("ingest", "read", "write")
_FORM: Final = re.compile(r"rw_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret. Limits are None where there are none."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    windows_per_second: float | None = None
    windows_per_day: int | None = None
    created_ns: int = 0
    revoked_ns: int | None = None


class TokenBook:
    """The tokens as of the last look into the store; `verify` may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tokens: Mapping[str, tuple[Token, str]] = {}

    def refresh(self) -> None:
        """Look into the store. Raises: StoreError; what was known before stays in force."""
        with self._store.reading() as session:
            rows = session.scalars(select(TokenRow).where(TokenRow.revoked_ns.is_(None))).all()
        self._tokens = {row.id: (_token_of(row), row.digest) for row in rows}

    def has(self, scope: Scope) -> bool:
        """Whether any token has a scope."""
        return any(scope in token.scopes for token, _ in self._tokens.values())

    def verify(self, text: str) -> Token | None:
        """The token that a text is; None for anything else."""
        match = _FORM.fullmatch(text)
        token, digest = self._tokens.get(match[1], (None, "")) if match is not None else (None, "")
        is_right = hmac.compare_digest(_digest(match[2]) if match is not None else "-", digest)
        return token if is_right else None


def create_token(
    store: Store,
    name: str,
    scopes: Iterable[str],
    at_ns: int,
    *,
    windows_per_second: float | None = None,
    windows_per_day: int | None = None,
) -> str:
    """Make a token; its text is given here and never again. Raises: ConfigurationError, StoreError, SQLAlchemyError."""
    wanted = tuple(s for s in SCOPES if s in set(scopes))
    if not wanted or set(scopes) - set(SCOPES):
        raise ConfigurationError(f"scopes must be among {', '.join(SCOPES)}")
    if not _NAME.fullmatch(name):
        raise ConfigurationError("a token's name has 1 to 64 letters, digits, dots, dashes, underscores or @")
    key, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    with store.writing() as session, session.begin():
        if session.scalar(select(TokenRow.id).where(TokenRow.name == name)) is not None:
            raise ConfigurationError(f"there is or was a token named {name}; choose another name")
        session.add(
            TokenRow(
                id=key,
                name=name,
                digest=_digest(secret),
                scopes=" ".join(wanted),
                windows_per_second=windows_per_second,
                windows_per_day=windows_per_day,
                created_ns=at_ns,
            )
        )
        write_audit(session, at_ns, "command line", "token created", name, " ".join(wanted))
    return f"rw_{key}_{secret}"


def list_tokens(store: Store) -> list[Token]:
    """All tokens, revoked ones too, oldest first. Raises: StoreError."""
    with store.reading() as session:
        return [_token_of(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.created_ns, TokenRow.id))]


def revoke_token(store: Store, name: str, at_ns: int) -> None:
    """Make a token worthless; running collectors notice within seconds. Raises: ConfigurationError, SQLAlchemyError."""
    with store.writing() as session, session.begin():
        row = session.scalar(select(TokenRow).where(TokenRow.name == name, TokenRow.revoked_ns.is_(None)))
        if row is None:
            raise ConfigurationError(f"there is no token named {name} that could be revoked")
        _revoke(session, row, at_ns)


def _revoke(session: Session, row: TokenRow, at_ns: int) -> None:
    row.revoked_ns = at_ns
    write_audit(session, at_ns, "command line", "token revoked", row.name, "")


def _token_of(row: TokenRow) -> Token:
    return Token(
        id=row.id,
        name=row.name,
        scopes=tuple(s for s in SCOPES if s in row.scopes.split()),
        windows_per_second=row.windows_per_second,
        windows_per_day=row.windows_per_day,
        created_ns=row.created_ns,
        revoked_ns=row.revoked_ns,
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
