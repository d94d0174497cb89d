"""PagerDuty: Events API v2.

Limits, from its reference: a summary of 1024 characters, a deduplication key of 255, a body of 512 KB; severity is one
of critical, error, warning, info. One incident there is one group here, so a rollout pages once; it is resolved when
the last incident of the group is closed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from replaywatch.contract.verdict import Severity
from replaywatch.notify import telling
from replaywatch.notify.destination import Outcome, Posting, is_success, refused
from replaywatch.notify.notice import Notice

ENQUEUE_URL: Final = "https://events.pagerduty.com/v2/enqueue"
SUMMARY_MAX: Final = 1024
_TEXT_MAX: Final = 2000
SEVERITIES: Final[Mapping[Severity, str]] = {"page": "critical", "warn": "warning", "info": "info", "none": "info"}


@dataclass(frozen=True, slots=True)
class PagerDuty:
    """Sends events under a routing key, which is the secret."""

    routing_key: str = field(repr=False)
    url: str = ENQUEUE_URL
    least: Severity = "page"
    name: str = "pagerduty"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen."""
        return (self.routing_key,)

    def wants(self, notice: Notice) -> bool:
        """An end only when nothing of the group stays open."""
        return notice.event != "closed" or notice.is_over

    def posting(self, notice: Notice, unix_seconds: int) -> Posting:
        """The event."""
        return Posting(self.url, json.dumps(event(notice, self.routing_key)).encode())

    def outcome(self, status: int, answer: str, headers: Mapping[str, str]) -> Outcome:
        """202 is success; 400 is an event that is wrong for good."""
        return Outcome(True) if is_success(status) else refused(status, answer, headers)


def event(notice: Notice, routing_key: str) -> dict[str, Any]:
    """The event's body."""
    head: dict[str, Any] = {"routing_key": routing_key, "dedup_key": dedup_key(notice)}
    if notice.event == "closed":
        return {**head, "event_action": "resolve"}
    w = notice.workload
    details = {
        "cost": telling.cost(notice),
        "cause": telling.cause(notice),
        "remedy": notice.remedy,
        "workloads": telling.members(notice) or [notice.label],
        "evidence": telling.evidence(notice),
        **{name.lower(): value for name, value in telling.facts(notice)},
    }
    return {
        **head,
        "event_action": "trigger",
        "payload": {
            "summary": telling.cut(f"{telling.headline(notice)}. {telling.cost(notice)}", SUMMARY_MAX),
            "source": telling.cut(str(w.get("node") or w.get("pod") or notice.label), 255),
            "severity": SEVERITIES[notice.severity],
            "timestamp": notice.at,
            "component": telling.cut(str(w.get("pod") or notice.label), 255),
            "group": telling.cut(str(w.get("model_name") or w.get("namespace") or "replaywatch"), 255),
            "class": notice.detector,
            "custom_details": {k: _short(v) for k, v in details.items() if v},
        },
        "client": "Replaywatch",
        **({"client_url": notice.links["incident"]} if "incident" in notice.links else {}),
        "links": [{"href": url, "text": name} for name, url in telling.links(notice)],
    }


def dedup_key(notice: Notice) -> str:
    """The same for every event of a group; a digest, because a group's name has no limit of length."""
    scope = f"{notice.group_key}/{notice.key}" if notice.is_test else notice.group_key
    return "replaywatch-" + hashlib.sha256(scope.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _short(value: object) -> object:
    if isinstance(value, list):
        return [telling.cut(str(v), 300) for v in value]
    return telling.cut(str(value), _TEXT_MAX)
