"""Generic JSON for other programs: the document itself, signed.

A receiver recomputes ``HMAC-SHA256(secret, f"{t}.{body}")`` from the header ``Replaywatch-Signature: t=<unix seconds>,
v1=<hexadecimal>`` and refuses old times. The header ``Idempotency-Key`` is the same at every attempt.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from replaywatch.contract.verdict import Severity
from replaywatch.notify.destination import Outcome, Posting, is_success, refused
from replaywatch.notify.notice import Notice

SIGNATURE_HEADER: Final = "Replaywatch-Signature"
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class SignedJson:
    """Posts the document as it is. The secret never shows up in a representation."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    least: Severity = "info"
    name: str = "webhook"
    is_inside: bool = False

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen."""
        return (self.url, self.secret or "")

    def wants(self, notice: Notice) -> bool:
        """Everything."""
        return True

    def posting(self, notice: Notice, unix_seconds: int) -> Posting:
        """The document with its signature."""
        content = notice.document.encode()
        headers = {"Idempotency-Key": notice.key, "Replaywatch-Event": notice.event}
        if self.secret is not None:
            headers[SIGNATURE_HEADER] = signature(self.secret, content, unix_seconds)
        return Posting(self.url, content, headers)

    def outcome(self, status: int, answer: str, headers: Mapping[str, str]) -> Outcome:
        """Whatever a program answers is tried again, except that it is gone: it may be mended meanwhile."""
        return Outcome(True) if is_success(status) else refused(status, "", headers, is_final=status == _GONE)


def signature(secret: str, body: bytes, unix_seconds: int) -> str:
    """The value of the signature header."""
    signed = hmac.new(secret.encode(), f"{unix_seconds}.".encode() + body, hashlib.sha256)
    return f"t={unix_seconds},v1={signed.hexdigest()}"
