"""Trying destinations: a message that says it is a test, sent once to each, with what came back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

import httpx

from replaywatch.notify.destination import TIMEOUT_SECONDS, Destination, Outcome, deliver
from replaywatch.notify.notice import Event, Notice, read_notice, runbook


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a test at one destination."""

    destination: str
    outcome: Outcome


def sample(unix_seconds: int, *, public_url: str, runbooks: str, event: Event = "opened", key: str = "one") -> Notice:
    """A notice as a real one is, marked as a test."""
    at = datetime.fromtimestamp(unix_seconds, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    document = {
        "schema_version": 1,
        "event": event,
        "is_test": True,
        "idempotency_key": f"test-{key}-{event}",
        "at": at,
        "incident": {
            "id": 0,
            "state": "closed" if event == "closed" else "open",
            "group_key": f"test/{key}",
            "opened_at": at,
            "closed_at": at if event == "closed" else None,
            "worst_severity": "page",
        },
        "workload": {
            "id": "test",
            "label": "example-pod",
            "namespace": "example",
            "pod": "example-pod",
            "engine": "vllm",
            "model_name": "example-model",
            "gpu_index": 0,
        },
        "detector": "disabled",
        "severity": "page",
        "title": "Graphs are off",
        "cost": {"ratio": 0.41, "low": 0.35, "high": 0.46, "step_us": 11800.0, "saved_us": 4838.0},
        "causes": [{"text": "this is a test; nothing is wrong", "weight": 1.0, "because": "a person asked for it"}],
        "remedy": "nothing to do: the message arrived",
        "evidence": [{"name": "device busy", "value": 0.21, "unit": "ratio", "source": "test"}],
        "links": {"incident": f"{public_url}/incidents", "runbook": runbook(runbooks, "disabled")},
        "dashboard_url": None,
    }
    return read_notice(json.dumps(document))


def send_trials(
    destinations: Iterable[Destination], unix_seconds: int, *, public_url: str, runbooks: str
) -> tuple[Trial, ...]:
    """Open and close a test incident at each destination; the first failure of each, else success."""
    key = uuid.uuid4().hex
    trials = []
    with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        for destination in destinations:
            outcome = Outcome(True)
            for event in _events():
                notice = sample(unix_seconds, public_url=public_url, runbooks=runbooks, event=event, key=key)
                outcome = deliver(client, destination, notice, unix_seconds)
                if not outcome.delivered:
                    break
            trials.append(Trial(destination.name, outcome))
    return tuple(trials)


def _events() -> tuple[Event, ...]:
    return ("opened", "closed")
