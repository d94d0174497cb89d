"""The Alertmanager destination against a real Alertmanager, which hands on to a real receiver."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given

from dashboards.programs import ALERTMANAGER, alertmanager
from notify.made import AT, any_notice, notice
from notify.receiver import StrictReceiver
from replaywatch.notify.alertmanager import Alertmanager, alert
from replaywatch.notify.destination import Outcome, deliver
from replaywatch.notify.notice import Notice
from replaywatch.notify.trial import send_trials

NOW = 1_800_000_000
WEBHOOK = {"version", "groupKey", "status", "receiver", "groupLabels", "alerts"}
needs_alertmanager = pytest.mark.skipif(
    ALERTMANAGER is None, reason="Alertmanager is not installed (Debian: prometheus-alertmanager)"
)
CONFIG = """
route: {{receiver: here, group_by: [alertname], group_wait: 100ms, group_interval: 1s}}
receivers: [{{name: here, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""


def faults(content: Any) -> list[str]:
    """What is missing from Alertmanager's own webhook message."""
    return sorted(WEBHOOK - set(content))


def text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


@pytest.fixture
def receiver() -> Iterator[StrictReceiver]:
    with StrictReceiver(faults) as it:
        yield it


@pytest.fixture
def url(tmp_path: Path, receiver: StrictReceiver) -> Iterator[str]:
    with alertmanager(tmp_path, CONFIG.format(url=receiver.url)) as it:
        yield it


def send(url: str, one: Notice) -> Outcome:
    with httpx.Client(timeout=5) as client:
        return deliver(client, Alertmanager(url), one, int(time.time()))


def alerts(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)
        return found


def wait_for(receiver: StrictReceiver, count: int) -> None:
    end = time.monotonic() + 20
    while len(receiver.received) < count:
        assert time.monotonic() < end, "Alertmanager did not hand it on"
        time.sleep(0.05)


@needs_alertmanager
def test_an_incident_goes_through_and_ends(url: str, receiver: StrictReceiver) -> None:
    began = text(time.time() - 60)
    assert send(url, notice(at=began, incident={"opened_at": began})) == Outcome(True)
    wait_for(receiver, 1)
    (shown,) = alerts(url)
    assert shown["labels"]["alertname"] == "CudaGraphDisabled"
    assert shown["labels"]["severity"] == "critical"
    assert shown["generatorURL"] == "http://collector.example/incidents/42"
    assert "41%" in shown["annotations"]["description"]
    ended = text(time.time() - 1)
    closed = notice(event="closed", incident={"opened_at": began, "closed_at": ended, "state": "closed"})
    assert send(url, closed) == Outcome(True)
    wait_for(receiver, 2)
    assert [c["status"] for c in receiver.contents] == ["firing", "resolved"]


@needs_alertmanager
def test_the_same_incident_posted_again_is_one_alert(url: str) -> None:
    began = text(time.time() - 60)
    for members in (1, 400):
        send(url, notice(incident={"opened_at": began, "members": members}, workload={"pod": f"pod-{members}"}))
    (shown,) = alerts(url)
    assert "400 workloads" in shown["annotations"]["summary"]
    other = notice(incident={"opened_at": began, "id": 43})
    with httpx.Client(timeout=5) as client:
        destination = Alertmanager(url)
        posting = destination.standing([notice(incident={"opened_at": began}), other], int(time.time()))
        assert client.post(posting.url, content=posting.body, headers={"Content-Type": "application/json"}).is_success
    assert len(alerts(url)) == 2


@needs_alertmanager
def test_a_trial_is_accepted(url: str) -> None:
    (trial,) = send_trials([Alertmanager(url)], int(time.time()), public_url="http://c.example", runbooks="docs")
    assert trial.outcome == Outcome(True)


@needs_alertmanager
def test_what_alertmanager_refuses_is_final(url: str) -> None:
    outcome = send(url, notice(incident={"opened_at": "not a time"}))
    assert outcome.is_final
    assert "400" in str(outcome.error)


@given(any_notice())
def test_labels_are_few_known_and_the_same_for_every_event_of_an_incident(one: Notice) -> None:
    content = alert(one, NOW)
    assert set(content["labels"]) <= {
        "alertname",
        "detector",
        "severity",
        "source",
        "incident",
        "namespace",
        "engine",
        "model_name",
    }
    assert all(content["labels"].values())
    assert all(isinstance(v, str) and v for v in content["annotations"].values())


def test_an_end_comes_of_itself_when_nobody_posts_again() -> None:
    assert alert(notice(), NOW)["endsAt"] == text(NOW + 240)
    closed = notice(event="closed", incident={"closed_at": AT})
    assert alert(closed, NOW)["endsAt"] == AT
