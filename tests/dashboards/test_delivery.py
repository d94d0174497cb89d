"""From windows to a receiver: agent, collector, Prometheus with the rules, Alertmanager, all of them real."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.fleet import EXPECTED
from dashboards.programs import needs_servers
from dashboards.stage import Stage, until
from replaywatch.dashboards.families import FAMILIES

pytestmark = needs_servers


def told(running: Stage, name: str) -> list[dict[str, Any]]:
    """Firing alerts of a name that reached the receiver."""
    return [
        alert
        for content in running.received.contents
        for alert in content["alerts"]
        if alert["labels"]["alertname"] == name and alert["status"] == "firing"
    ]


def test_every_family_has_its_fault_here() -> None:
    assert set(EXPECTED) == set(FAMILIES)


@pytest.mark.parametrize("family", EXPECTED)
def test_a_fault_of_each_family_reaches_a_receiver(running: Stage, family: str) -> None:
    pod, name = EXPECTED[family]
    until(lambda: told(running, name))
    (alert, *_) = [a for a in told(running, name) if a["labels"]["pod"] == pod]
    assert alert["labels"]["family"] == family
    # That witnesses disagree is told and wakes nobody.
    assert alert["labels"]["severity"] in (("info",) if family == "sight" else ("critical", "warning"))
    assert alert["labels"]["namespace"] == "serving"
    assert alert["labels"]["UUID"] == f"GPU-{pod}"
    assert alert["annotations"]["runbook_url"] == f"http://docs.example/alerts.md#{name.lower()}"
    assert pod in alert["annotations"]["summary"]


def test_an_alert_names_what_would_come_back(running: Stage) -> None:
    until(lambda: told(running, "CudaGraphDisabled"))
    (alert, *_) = told(running, "CudaGraphDisabled")
    assert alert["annotations"]["description"].startswith("About ")
    assert "% of the workload's step time could be won back" in alert["annotations"]["description"]


def test_the_fleets_loss_and_burning_budgets_are_told(running: Stage) -> None:
    for name in ("CudaGraphFleetLosesGpus", "CudaGraphOverflowBurn6h"):
        # The long hold of the first is part of the rule; pending shows that its expression holds.
        until(lambda name=name: [a for a in running.prometheus.alerts() if a["labels"]["alertname"] == name])


def test_healthy_workloads_raise_no_alert_of_a_finding(running: Stage) -> None:
    until(lambda: told(running, "CudaGraphDisabled"))
    named = {a["labels"].get("pod") for a in running.prometheus.alerts() if "detector" in a["labels"]}
    assert "healthy-0" not in named
    assert "blind-0" not in named


def test_every_target_is_scraped_without_a_complaint(running: Stage) -> None:
    until(lambda: all(t["health"] == "up" for t in running.prometheus.targets()))
    assert {t["lastError"] for t in running.prometheus.targets()} == {""}
