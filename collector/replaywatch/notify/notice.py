"""`Notice`: an event of an incident, as people are told of it.

It is read from the JSON document that waits in the collector's outbox, so that a message outlives a restart and is put
into a destination's form only when it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from replaywatch.contract.errors import WireError
from replaywatch.contract.verdict import SEVERITIES, Severity

Event = Literal["opened", "raised", "grown", "closed"]
EVENTS: Final[tuple[Event, ...]] = ("opened", "raised", "grown", "closed")


@dataclass(frozen=True, slots=True)
class Cost:
    """What is lost: share of the step time with its interval, and microseconds a step where known."""

    ratio: float
    low: float
    high: float
    step_us: float | None = None
    saved_us: float | None = None
    is_recoverable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What happened to an incident. The fields about one workload are those of the incident's worst member.

    `members` is how many workloads ever belonged to it, at least one; `open_members` how many still do. `document` is
    the JSON it was read from.
    """

    event: Event
    key: str
    at: str
    incident_id: int
    group_key: str
    detector: str
    severity: Severity
    worst_severity: Severity
    title: str
    opened_at: str
    closed_at: str | None
    workload: Mapping[str, Any]
    cost: Cost | None
    causes: tuple[str, ...]
    remedy: str | None
    evidence: tuple[Mapping[str, Any], ...]
    links: Mapping[str, str]
    members: int
    open_members: int
    document: str
    is_test: bool = False

    @property
    def label(self) -> str:
        """What the workload is called."""
        return str(self.workload.get("label") or "workload")


def read_notice(text: str) -> Notice:
    """The notice in a document. Raises: WireError for anything else."""
    try:
        content = json.loads(text)
        return _notice(content, text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"a waiting notification is damaged ({type(error).__name__}); it cannot be sent") from None


def runbook(base: str, detector: str) -> str:
    """Where the documentation says what an alert of a detector means. `base` is the address of the docs folder."""
    return f"{base.rstrip('/')}/alerts.md#cudagraph{detector.replace('_', '')}"


def _notice(content: dict[str, Any], text: str) -> Notice:
    incident: dict[str, Any] = content["incident"]
    links = {name: str(url) for name, url in content["links"].items() if url}
    if content.get("dashboard_url"):
        links["dashboard"] = str(content["dashboard_url"])
    return Notice(
        event=_event(content["event"]),
        key=str(content["idempotency_key"]),
        at=str(content["at"]),
        incident_id=int(incident["id"]),
        group_key=str(incident["group_key"]),
        detector=str(content["detector"]),
        severity=_severity(content["severity"]),
        worst_severity=_severity(incident["worst_severity"]),
        title=str(content.get("title") or content["detector"]),
        opened_at=str(incident["opened_at"]),
        closed_at=None if incident.get("closed_at") is None else str(incident["closed_at"]),
        workload=dict(content["workload"]),
        cost=_cost(content.get("cost")),
        causes=tuple(str(c["text"]) for c in content.get("causes") or []),
        remedy=None if content.get("remedy") is None else str(content["remedy"]),
        evidence=tuple(dict(e) for e in content.get("evidence") or []),
        links=links,
        members=max(1, int(incident.get("members") or 1)),
        open_members=int(incident.get("open_members") or 0),
        document=text,
        is_test=bool(content.get("is_test", False)),
    )


def _cost(content: dict[str, Any] | None) -> Cost | None:
    if content is None:
        return None
    return Cost(
        ratio=float(content["ratio"]),
        low=float(content["low"]),
        high=float(content["high"]),
        step_us=_number(content.get("step_us")),
        saved_us=_number(content.get("saved_us")),
        is_recoverable=bool(content.get("is_recoverable", True)),
    )


def _number(value: object) -> float | None:
    return None if value is None else float(cast(float, value))


def _event(text: object) -> Event:
    return next(e for e in EVENTS if e == text) if text in EVENTS else _refuse(text)


def _severity(text: object) -> Severity:
    return next(s for s in SEVERITIES if s == text) if text in SEVERITIES else _refuse(text)


def _refuse(text: object) -> Any:
    raise ValueError(f"{text!r} is no event or severity")
