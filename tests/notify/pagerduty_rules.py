"""What PagerDuty's reference of the Events API v2 asks for, as a check."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

TOP = {"routing_key", "event_action", "dedup_key", "payload", "images", "links", "client", "client_url"}
PAYLOAD = {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}


def pagerduty_faults(content: Any) -> list[str]:
    """Why PagerDuty would refuse the event; empty when it would not."""
    if not isinstance(content, dict):
        return ["no object"]
    found = [f"unknown {k}" for k in set(content) - TOP]
    key = content.get("routing_key")
    if not isinstance(key, str) or len(key) != 32:
        found.append("routing_key must have 32 characters")
    action = content.get("event_action")
    if action not in ("trigger", "acknowledge", "resolve"):
        found.append("event_action")
    dedup = content.get("dedup_key")
    if dedup is not None and (not isinstance(dedup, str) or not 1 <= len(dedup) <= 255):
        found.append("dedup_key")
    if action != "trigger" and dedup is None:
        found.append("dedup_key is required")
    if len(json.dumps(content).encode()) > 512 * 1024:
        found.append("too large")
    if action == "trigger":
        found += _payload(content.get("payload"))
    for link in content.get("links", []):
        if set(link) - {"href", "text"} or not str(link.get("href", "")).startswith(("http://", "https://")):
            found.append("link")
    return found


def _payload(payload: Any) -> list[str]:
    if not isinstance(payload, dict):
        return ["payload is required"]
    found = [f"payload: unknown {k}" for k in set(payload) - PAYLOAD]
    summary, source = payload.get("summary"), payload.get("source")
    if not isinstance(summary, str) or not 1 <= len(summary) <= 1024:
        found.append("summary must have 1 to 1024 characters")
    if not isinstance(source, str) or not source:
        found.append("source")
    if payload.get("severity") not in ("critical", "error", "warning", "info"):
        found.append("severity")
    for name in ("component", "group", "class"):
        if name in payload and not isinstance(payload[name], str):
            found.append(name)
    if "custom_details" in payload and not isinstance(payload["custom_details"], dict):
        found.append("custom_details")
    if "timestamp" in payload:
        try:
            datetime.fromisoformat(str(payload["timestamp"]).replace("Z", "+00:00"))
        except ValueError:
            found.append("timestamp")
    return found
