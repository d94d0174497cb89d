"""Alertmanager: alerts posted to its API, version 2.

Alertmanager forgets open alerts when it starts and ends those that are not posted again, so the collector posts open
incidents again and again (`standing`), each time with an end a few rounds ahead; an event of the outbox only makes the
beginning and the end arrive at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

from replaywatch.contract.verdict import Severity
from replaywatch.notify import telling
from replaywatch.notify.destination import Outcome, Posting, is_success, refused
from replaywatch.notify.notice import Notice

PATH: Final = "/api/v2/alerts"
ROUND_SECONDS: Final = 60
# Three rounds may be lost before an alert that still holds ends by itself.
_LIFE_SECONDS: Final = 4 * ROUND_SECONDS
_TEXT_MAX: Final = 2000
SEVERITIES: Final[Mapping[str, str]] = {"page": "critical", "warn": "warning", "info": "info", "none": "info"}
# Labels are an alert's identity. Pod and device are those of the worst member, which changes, so they are no labels.
_LABELS: Final = ("namespace", "engine", "model_name")


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Posts alerts to one Alertmanager. `url` has no path; credentials in it are the secret."""

    url: str = field(repr=False)
    least: Severity = "warn"
    name: str = "alertmanager"
    is_inside: bool = True

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen."""
        return (self.url,)

    def wants(self, notice: Notice) -> bool:
        """Everything."""
        return True

    def posting(self, notice: Notice, unix_seconds: int) -> Posting:
        """The incident as an alert."""
        return self.standing([notice], unix_seconds)

    def standing(self, notices: Iterable[Notice], unix_seconds: int) -> Posting:
        """Some incidents as alerts in one request."""
        found = [alert(notice, unix_seconds) for notice in notices]
        return Posting(self.url.rstrip("/") + PATH, json.dumps(found).encode())

    def outcome(self, status: int, answer: str, headers: Mapping[str, str]) -> Outcome:
        """400 is an alert that is wrong for good."""
        return Outcome(True) if is_success(status) else refused(status, answer, headers, is_final=status == 400)


def alert(notice: Notice, unix_seconds: int) -> dict[str, Any]:
    """One alert, with the same labels at all events of an incident that does not get worse."""
    ends = notice.closed_at if notice.event == "closed" and notice.closed_at else _text_of(unix_seconds + _LIFE_SECONDS)
    w = notice.workload
    labels = {
        "alertname": alert_name(notice.detector),
        "detector": notice.detector,
        "severity": SEVERITIES[notice.worst_severity],
        "source": "replaywatch",
        "incident": notice.group_key if notice.is_test else str(notice.incident_id),
        **{name: str(w[name]) for name in _LABELS if w.get(name)},
    }
    notes = {
        "summary": telling.headline(notice),
        "description": telling.cost(notice),
        "cause": telling.cause(notice),
        "remedy": notice.remedy,
        "pod": w.get("pod"),
        "node": w.get("node"),
        "UUID": w.get("gpu_uuid"),
        "runbook_url": notice.links.get("runbook"),
        "dashboard_url": notice.links.get("dashboard"),
    }
    return {
        "labels": {name: telling.cut(value, 500) for name, value in labels.items()},
        "annotations": {name: telling.cut(str(value), _TEXT_MAX) for name, value in notes.items() if value},
        "startsAt": notice.opened_at,
        "endsAt": ends,
        **({"generatorURL": notice.links["incident"]} if "incident" in notice.links else {}),
    }


def alert_name(detector: str) -> str:
    """As the rules for Prometheus name it, so that one route of Alertmanager serves both."""
    words = re.split(r"[^A-Za-z0-9]+", detector)
    return "CudaGraph" + "".join(word.capitalize() for word in words)


def _text_of(unix_seconds: int) -> str:
    return datetime.fromtimestamp(unix_seconds, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
