"""What runs in a cluster, on loopback: agent, collector, neighbours, Prometheus, Alertmanager, a receiver."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.frames import Probe
from dashboards.fleet import COST, calm_before, fleet, frames, moment
from dashboards.neighbours import Neighbours
from dashboards.programs import Prometheus, alertmanager, prometheus
from notify.receiver import StrictReceiver
from replaywatch.agent.options import AgentOptions
from replaywatch.agent.serve import start_in_thread as start_agent
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import start_in_thread as start_collector
from replaywatch.dashboards.rule import RuleSettings
from replaywatch.dashboards.rules import rules_text

SECOND = 10**9
RULES = RuleSettings(runbooks="http://docs.example", interval="1s", hold="0s", keep="3s", pause="1s", gpus=0.5)
WEBHOOK_FIELDS = {
    "version",
    "groupKey",
    "truncatedAlerts",
    "status",
    "receiver",
    "groupLabels",
    "commonLabels",
    "alerts",
}
ALERT_FIELDS = {"status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"}
_ROUTE = """
route: {{receiver: here, group_by: [alertname], group_wait: 200ms, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: here, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""
_SCRAPES = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs:
  - {{job_name: agents, honor_labels: true, static_configs: [{{targets: ["{agent}"]}}]}}
  - {{job_name: collector, honor_labels: true, static_configs: [{{targets: ["{collector}"]}}]}}
  - {{job_name: neighbours, honor_labels: true, static_configs: [{{targets: ["{neighbours}"]}}]}}
"""


@dataclass(frozen=True)
class Stage:
    """What tests look at."""

    prometheus: Prometheus
    received: StrictReceiver
    alertmanager_url: str
    collector_url: str


def webhook_faults(content: dict[str, object]) -> list[str]:
    """Why a message is not one of Alertmanager's webhook, version 4."""
    found = sorted(WEBHOOK_FIELDS - set(content))
    found += [] if content.get("version") == "4" else ["version"]
    alerts = content.get("alerts")
    assert isinstance(alerts, list)
    return found + [f"alert: {field}" for alert in alerts for field in ALERT_FIELDS - set(alert)]


def until(condition: Callable[[], object], seconds: float = 45.0) -> None:
    """Return once a condition holds. Raises: AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """All of it, fed from now on."""
    with ExitStack() as stack:
        received = stack.enter_context(StrictReceiver(webhook_faults))
        router = stack.enter_context(alertmanager(folder, _ROUTE.format(url=received.url)))
        options = CollectorOptions(port=0, store=f"sqlite:///{folder / 'stage.db'}", tick_seconds=0.5)
        collector = start_collector(options)
        stack.callback(collector.stop)
        agent = start_agent(
            AgentOptions(
                socket=folder / "s",
                listen="127.0.0.1:0",
                collector_url=collector.url,
                spool_dir=folder / "spool",
                batch_seconds=0.3,
                frames_per_second=10_000,
                scope="node",
            )
        )
        stack.callback(agent.stop)
        now = time.time_ns()
        first = moment(now, random.Random(1))
        uuids = [str(w.workload.gpu_uuid) for w in first]
        neighbours = stack.enter_context(Neighbours(uuids, {str(w.workload.model_name) for w in first}))
        stack.enter_context(_fed(agent.socket_path))
        rules = folder / "rules.yml"
        rules.write_text(rules_text(RULES))
        config = _SCRAPES.format(
            rules=rules,
            alertmanager=router.removeprefix("http://"),
            agent=str(agent.metrics_url).removeprefix("http://").removesuffix("/metrics"),
            collector=collector.url.removeprefix("http://"),
            neighbours=neighbours.address,
        )
        server = stack.enter_context(prometheus(folder, config))
        yield Stage(server, received, router, collector.url)


@contextmanager
def _fed(path: Path) -> Iterator[None]:
    """A minute and a half of the fleet at once, then more of it twice a second."""
    stopping = threading.Event()

    def feed() -> None:
        rng = random.Random(3)
        with Probe(path) as probe:
            now = time.time_ns()
            for data in frames(list(calm_before(now - 90 * SECOND)), "calm"):
                probe.send(data)
            for number, windows in enumerate(fleet(now, 1.5)):
                for data in frames(windows, f"past-{number}"):
                    probe.send(data)
            number = 0
            while not stopping.wait(0.5):
                number += 1
                windows = [replace(w, cost=COST) for w in moment(time.time_ns() - 5 * SECOND, rng)]
                for data in frames(windows, f"live-{number}"):
                    probe.send(data)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
