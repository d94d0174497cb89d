"""PagerDuty: Events API v2.

Limits, from its reference: a summary of 1024 characters, a deduplication key of 255, a body of 512 KB; severity is one
of critical, error, warning, info. An incident there is one here, with all its workloads: a rollout pages once.
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
    is_inside: bool = False

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen."""
        return (self.routing_key,)

    def wants(self, notice: Notice) -> bool:
        """Everything."""
        return True

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
            "custom_details": {k: telling.cut(v, _TEXT_MAX) for k, v in details.items() if v},
        },
        "client": "Replaywatch",
        **({"client_url": notice.links["incident"]} if "incident" in notice.links else {}),
        "links": [{"href": url, "text": name} for name, url in telling.links(notice)],
    }


def dedup_key(notice: Notice) -> str:
    """The same for every event of an incident, and another at every collector."""
    scope = notice.group_key if notice.is_test else f"{notice.links.get('incident')}/{notice.incident_id}"
    return "replaywatch-" + hashlib.sha256(scope.encode("utf-8", "surrogatepass")).hexdigest()[:40]
