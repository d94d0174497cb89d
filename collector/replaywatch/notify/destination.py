"""What every destination is: it puts a notice into its own form, and reads the receiver's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import httpx

from replaywatch.contract.verdict import Severity, severity_rank
from replaywatch.notify.notice import Notice

TIMEOUT_SECONDS: Final = 5.0
_ANSWER_SHOWN: Final = 200
# Nobody repairs a refused message by sending it again; these answers are about the moment, not the message.
_WORTH_ANOTHER_TRY: Final = frozenset((408, 421, 425, 429))


@dataclass(frozen=True, slots=True)
class Posting:
    """One HTTP POST. Each part may hold a secret, so none shows up in a representation."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt went. `retry_after_seconds` is what the receiver asked for; `is_final` that it wants no more."""

    delivered: bool
    error: str | None = None
    is_final: bool = False
    retry_after_seconds: float | None = None


class Destination(Protocol):
    """Where people are told.

    `name` is unique, at most 31 characters, and a label of metrics. `least` is the severity from which on it is told.
    `secrets` are texts that must not be seen in an error. `is_inside`: it belongs to the cluster, so that a private
    address is what is meant.
    """

    @property
    def name(self) -> str:
        """See the class."""
        ...

    @property
    def least(self) -> Severity:
        """See the class."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """See the class."""
        ...

    @property
    def is_inside(self) -> bool:
        """See the class."""
        ...

    def wants(self, notice: Notice) -> bool:
        """Whether this event is one to tell of here, beside its severity."""
        ...

    def posting(self, notice: Notice, unix_seconds: int) -> Posting:
        """The request that tells of a notice; pure, so that every attempt says the same."""
        ...

    def outcome(self, status: int, answer: str, headers: Mapping[str, str]) -> Outcome:
        """What the receiver's answer means."""
        ...


def is_told(destination: Destination, notice: Notice) -> bool:
    """Whether a destination is told of a notice. Ends are told where the worst of the incident was told."""
    severity = notice.worst_severity if notice.event == "closed" else notice.severity
    return severity_rank(severity) >= severity_rank(destination.least) and destination.wants(notice)


def deliver(client: httpx.Client, destination: Destination, notice: Notice, unix_seconds: int) -> Outcome:
    """One attempt. Redirects are not followed: what was configured is what is posted to."""
    posting = destination.posting(notice, unix_seconds)
    headers = {"Content-Type": "application/json", "User-Agent": "replaywatch", **posting.headers}
    try:
        response = client.post(posting.url, content=posting.body, headers=headers, follow_redirects=False)
    except httpx.HTTPError as error:
        # The text of the error could carry the address, and an address can carry a secret. Our own carry none.
        told = str(error) if type(error).__module__.startswith("replaywatch.") else type(error).__name__
        return Outcome(False, f"the receiver cannot be reached ({told})")
    outcome = destination.outcome(response.status_code, response.text, response.headers)
    return outcome if outcome.error is None else _without_secrets(outcome, destination.secrets)


def refused(status: int, answer: str, headers: Mapping[str, str], *, is_final: bool | None = None) -> Outcome:
    """The outcome of an answer that is not success; final for client errors unless told otherwise."""
    final = 400 <= status < 500 and status not in _WORTH_ANOTHER_TRY if is_final is None else is_final
    said = " ".join(answer.split())[:_ANSWER_SHOWN]
    wanted = headers.get("Retry-After", headers.get("retry-after", ""))
    return Outcome(
        False,
        f"the receiver answered {status}" + (f": {said}" if said else ""),
        is_final=final,
        retry_after_seconds=float(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 6 else None,
    )


def is_success(status: int) -> bool:
    """Whether a status is one of success."""
    return 200 <= status < 300


def _without_secrets(outcome: Outcome, secrets: tuple[str, ...]) -> Outcome:
    text = outcome.error or ""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return Outcome(outcome.delivered, text, outcome.is_final, outcome.retry_after_seconds)
