"""The JSON document that tells of an event: the generic webhook's body, and what every destination is made from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from replaywatch.collector.documents import SCHEMA_VERSION, Document, time_text, workload_document
from replaywatch.collector.incidents import Incident
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.window import Workload
from replaywatch.notify.notice import runbook


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses that a message carries. `public_url` has no slash at its end; `runbook_url` is the docs folder's."""

    public_url: str
    dashboard_url: str | None = None
    runbook_url: str | None = None


def checked_url(url: str, option: str) -> str:
    """A web address that can be used. Raises: ConfigurationError, without showing credentials inside the address."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(f"--{option} must be an http:// or https:// address with a host")
    return url


def message(links: Links, event: str, incident: Incident, workload: Workload, key: str) -> str:
    """The JSON body for an event of an incident."""
    finding = incident.finding
    base = links.public_url
    body: Document = {
        "schema_version": SCHEMA_VERSION,
        "event": event,
        "idempotency_key": key,
        "at": time_text(incident.changed_ns),
        "incident": {
            "id": incident.id,
            "state": incident.state,
            "group_key": incident.group_key,
            "opened_at": time_text(incident.opened_ns),
            "closed_at": time_text(incident.closed_ns),
            "worst_severity": incident.worst_severity,
            "members": incident.members,
            "open_members": incident.open_members,
            "acknowledged_by": incident.acknowledged_by,
        },
        "workload": workload_document(workload, incident.workload_id),
        "detector": incident.detector,
        "severity": incident.severity,
        "title": finding.get("title"),
        "cost": finding.get("cost"),
        "causes": finding.get("causes", []),
        "remedy": finding.get("remedy"),
        "evidence": finding.get("evidence", []),
        "links": {
            "incident": f"{base}/incidents/{incident.id}",
            "workload": f"{base}/workloads/{incident.workload_id}",
            "runbook": None if links.runbook_url is None else runbook(links.runbook_url, incident.detector),
        },
        "dashboard_url": links.dashboard_url,
    }
    return json.dumps(body, separators=(",", ":"))
