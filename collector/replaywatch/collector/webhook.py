"""The generic webhook: what is posted, how it is signed, and one attempt at posting it.

A receiver recomputes ``HMAC-SHA256(secret, f"{t}.{body}")`` from the header ``Replaywatch-Signature: t=<unix seconds>,
v1=<hexadecimal>`` and refuses old times. The header ``Idempotency-Key`` is the same at every attempt.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx

from replaywatch.collector.documents import SCHEMA_VERSION, Document, time_text, workload_document
from replaywatch.collector.guarded_connect import AddressRefused
from replaywatch.collector.incidents import Incident
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.window import Workload

TIMEOUT_SECONDS: Final = 5.0
SIGNATURE_HEADER: Final = "Replaywatch-Signature"


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses that a message carries. `public_url` has no slash at its end."""

    public_url: str
    dashboard_url: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt went. `retry_after_seconds` is what the receiver asked for; `is_final` that it wants no more."""

    delivered: bool
    error: str | None = None
    is_final: bool = False
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go. The secret never shows up in a representation.

    `allow_private`: the address may lie inside, on loopback or in a private network.
    """

    url: str
    secret: str | None = field(default=None, repr=False)
    allow_private: bool = False


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
        },
        "dashboard_url": links.dashboard_url,
    }
    return json.dumps(body, separators=(",", ":"))


def signature(secret: str, body: bytes, unix_seconds: int) -> str:
    """The value of the signature header."""
    signed = hmac.new(secret.encode(), f"{unix_seconds}.".encode() + body, hashlib.sha256)
    return f"t={unix_seconds},v1={signed.hexdigest()}"


def post(client: httpx.Client, target: Target, body: str, key: str, event: str, unix_seconds: int) -> Outcome:
    """One attempt. Redirects are not followed: what was configured is what is posted to."""
    content = body.encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "replaywatch",
        "Idempotency-Key": key,
        "Replaywatch-Event": event,
    }
    if target.secret is not None:
        headers[SIGNATURE_HEADER] = signature(target.secret, content, unix_seconds)
    try:
        response = client.post(target.url, content=content, headers=headers, follow_redirects=False)
    except AddressRefused as error:
        return Outcome(False, str(error))
    except httpx.HTTPError as error:
        # The text of the error could carry the address, and an address can carry a secret.
        return Outcome(False, f"the receiver cannot be reached ({type(error).__name__})")
    if response.is_success:
        return Outcome(True)
    wanted = response.headers.get("Retry-After", "")
    return Outcome(
        False,
        f"the receiver answered {response.status_code}",
        is_final=response.status_code == httpx.codes.GONE,
        retry_after_seconds=float(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 6 else None,
    )
