"""Several destinations behind one outbox: lanes, severities, allowances, dead letters, two processes, restarts."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector import web
from collector.material import HEADERS, SECOND, body, eager_window, workload
from collector.rig import Rig
from dashboards.programs import alertmanager, free_port
from notify.pagerduty_rules import pagerduty_faults
from notify.receiver import StrictReceiver
from notify.slack_rules import slack_faults
from notify.test_alertmanager import CONFIG, alerts, needs_alertmanager
from replaywatch.collector.destinations import destinations_of
from replaywatch.collector.notifier import Notifier
from replaywatch.collector.options import CollectorOptions, settings
from replaywatch.collector.outbox import find_messages, outbox_counts
from replaywatch.collector.serve import start_in_thread
from replaywatch.collector.silences import add_silence
from replaywatch.collector.standing import Standing
from replaywatch.collector.webhook import Links, message
from replaywatch.contract.errors import ConfigurationError
from replaywatch.notify.alertmanager import Alertmanager
from replaywatch.notify.destination import Destination
from replaywatch.notify.pagerduty import PagerDuty
from replaywatch.notify.slack import Slack

KEY = "0123456789abcdef0123456789abcdef"
LINKS = Links("http://collector.example", None, "http://docs.example")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    it = Rig(f"sqlite:///{tmp_path / 'r.db'}", links=LINKS)
    yield it
    it.stop()


@pytest.fixture
def slack() -> Iterator[StrictReceiver]:
    with StrictReceiver(slack_faults) as it:
        yield it


@pytest.fixture
def pagerduty() -> Iterator[StrictReceiver]:
    with StrictReceiver(pagerduty_faults, (202, "{}")) as it:
        yield it


def notifier_of(rig: Rig, *destinations: Destination, per_minute: int = 1000) -> Notifier:
    return Notifier(
        rig.store, rig.writer, destinations, rig.clock, lambda: 0.5, allow_private=True, per_minute=per_minute
    )


def both(rig: Rig, slack: StrictReceiver, pagerduty: StrictReceiver) -> Notifier:
    return notifier_of(rig, Slack(slack.url + "/x"), PagerDuty(KEY, pagerduty.url))


def test_each_destination_hears_from_its_own_severity_on(
    rig: Rig, slack: StrictReceiver, pagerduty: StrictReceiver
) -> None:
    notifier = both(rig, slack, pagerduty)
    for says, ticks in (("warn", 3), ("page", 3), ("healthy", 8)):
        for _ in range(ticks):
            rig.tick(says)
            notifier.deliver_due()
    assert len(slack.contents) == 3
    assert [c["event_action"] for c in pagerduty.contents] == ["trigger", "resolve"]
    assert "http://docs.example/alerts.md#cudagraphdisabled" in str(slack.contents[0])


def test_a_destination_that_fails_holds_up_no_other(rig: Rig, slack: StrictReceiver, pagerduty: StrictReceiver) -> None:
    slack.faults = [(500, "", {})] * 50
    notifier = both(rig, slack, pagerduty)
    for says, ticks in (("page", 3), ("healthy", 8)):
        for _ in range(ticks):
            rig.tick(says)
            notifier.deliver_due()
    assert [c["event_action"] for c in pagerduty.contents] == ["trigger", "resolve"]
    slack.faults = []
    rig.clock.advance(1000)
    notifier.deliver_due()
    notifier.deliver_due()
    texts = [str(r.content["text"]) for r in slack.received]
    assert "over: " not in texts[-2]
    assert "over: " in texts[-1]


def test_an_allowance_delays_and_loses_nothing(rig: Rig, slack: StrictReceiver) -> None:
    notifier = notifier_of(rig, Slack(slack.url), per_minute=1)
    for says, ticks in (("warn", 3), ("page", 3)):
        for _ in range(ticks):
            rig.tick(says)
            notifier.deliver_due()
    assert len(slack.received) == 1
    assert notifier.outcomes.value("slack", "limited") > 0
    rig.clock.advance(60)
    notifier.deliver_due()
    assert len(slack.contents) == 2


def test_what_nobody_wants_is_not_kept_waiting(rig: Rig, pagerduty: StrictReceiver) -> None:
    notifier = notifier_of(rig, PagerDuty(KEY, pagerduty.url))
    rig.tick("warn", ticks=3)
    notifier.deliver_due()
    with rig.store.session() as session:
        assert outbox_counts(session) == {"unwanted": 1}


def test_two_processes_on_one_store_tell_once(rig: Rig, slack: StrictReceiver) -> None:
    first, second = (notifier_of(rig, Slack(slack.url)) for _ in range(2))
    rig.tick("page", ticks=2)
    tried: list[int] = []
    slack.faults = [(500, "", {})]
    first.deliver_due()
    rig.clock.advance(10)

    class Between(Slack):
        """While this message is made, the other process comes along."""

        def posting(self, notice: Any, unix_seconds: int) -> Any:
            tried.append(second.deliver_due())
            return super().posting(notice, unix_seconds)

    notifier_of(rig, Between(slack.url)).deliver_due()
    assert tried == [0]
    assert len(slack.received) == 2


def test_a_destination_that_was_taken_away_leaves_a_dead_letter(rig: Rig, slack: StrictReceiver) -> None:
    slack.faults = [(500, "", {})]
    rig.tick("page", ticks=2)
    notifier_of(rig, Slack(slack.url)).deliver_due()
    rig.clock.advance(10)
    notifier_of(rig, PagerDuty(KEY)).deliver_due()
    with rig.store.session() as session:
        (row,) = find_messages(session, ("dead",), "slack")
        assert row.last_error == "it is no longer configured"


def test_dead_letters_are_shown_with_what_the_receiver_said(tmp_path: Path, slack: StrictReceiver) -> None:
    slack.faults = [(403, "action_prohibited", {})]
    options = CollectorOptions(
        port=0,
        store=f"sqlite:///{tmp_path / 'd.db'}",
        slack_webhook_url=slack.url + "/secret-path",
        webhook_allow_private=True,
        group_wait_seconds=0,
        tick_seconds=0.1,
    )
    handle = start_in_thread(options)
    try:
        _fault(handle.url)
        url = f"{handle.url}/v1/notifications?state=dead"
        _until(lambda: web.get(url).json()["notifications"])
        (shown,) = web.get(url).json()["notifications"]
        assert (shown["destination"], shown["event"], shown["attempts"]) == ("slack", "opened", 1)
        assert shown["error"] == "the receiver answered 403: action_prohibited"
        assert "secret-path" not in web.get(f"{handle.url}/v1/notifications").text
        text = web.get(f"{handle.url}/metrics").text
        assert 'replaywatch_collector_notifications_total{destination="slack",outcome="dead"} 1.0' in text
        assert web.get(f"{handle.url}/v1/notifications?state=lost").status_code == 400
    finally:
        handle.stop()


@needs_alertmanager
def test_an_alertmanager_that_restarts_knows_open_incidents_again(rig: Rig, tmp_path: Path) -> None:
    rig.clock.now_ns = time.time_ns()
    rig.tick("page", ticks=2)
    with StrictReceiver(lambda content: []) as here:
        for name in ("first", "second"):
            folder = tmp_path / name
            folder.mkdir()
            with alertmanager(folder, CONFIG.format(url=here.url)) as url:
                standing = Standing(rig.store, Alertmanager(url), lambda *a: message(LINKS, *a), rig.clock)
                assert standing.repeat() == 1
                (shown,) = alerts(url)
                assert shown["labels"]["alertname"] == "CudaGraphDisabled"
                rig.clock.advance(60)
                standing.repeat()
                assert len(alerts(url)) == 1


@needs_alertmanager
def test_silenced_and_small_incidents_are_not_repeated(rig: Rig, tmp_path: Path) -> None:
    rig.clock.now_ns = time.time_ns()
    rig.tick("warn", ticks=2)
    nobody = f"http://127.0.0.1:{free_port()}"
    told = lambda *a: message(LINKS, *a)  # noqa: E731
    assert Standing(rig.store, Alertmanager(nobody, "page"), told, rig.clock).repeat() == 0
    with rig.store.session() as session, session.begin():
        add_silence(
            session,
            kind="silence",
            matchers={"pod": "pod-*"},
            starts_ns=rig.clock() - 1,
            ends_ns=rig.clock() + 10**12,
            comment="",
            who="test",
            at_ns=rig.clock(),
        )
    with alertmanager(tmp_path, CONFIG.format(url="http://127.0.0.1:1")) as url:
        assert Standing(rig.store, Alertmanager(url), told, rig.clock).repeat() == 0
        assert alerts(url) == []


def test_destinations_come_from_environment_and_files(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    environment = {
        "REPLAYWATCH_COLLECTOR_SLACK_WEBHOOK_URL": "https://hooks.example/T/B/secret",
        "REPLAYWATCH_COLLECTOR_PAGERDUTY_ROUTING_KEY_FILE": str(file),
        "REPLAYWATCH_COLLECTOR_ALERTMANAGER_URL": "http://alertmanager:9093/",
        "REPLAYWATCH_COLLECTOR_SLACK_SEVERITY": "page",
    }
    options = settings({}, environment)
    found = {d.name: d for d in destinations_of(options)}
    assert set(found) == {"slack", "pagerduty", "alertmanager"}
    assert found["slack"].least == "page"
    assert found["pagerduty"].secrets == (KEY,)
    assert found["alertmanager"].is_inside
    assert not found["slack"].is_inside
    told = repr(options) + repr(found)
    assert "secret" not in told.replace("webhook_secret", "")
    assert KEY not in told


@pytest.mark.parametrize("name", ["slack_webhook_url", "teams_webhook_url", "alertmanager_url", "pagerduty_url"])
def test_an_address_that_cannot_work_is_refused_without_being_shown(name: str) -> None:
    given: dict[str, Any] = {name: "secret-nonsense", "pagerduty_routing_key": KEY}
    with pytest.raises(ConfigurationError, match=name.replace("_", "-")) as refused:
        destinations_of(CollectorOptions(**given))
    assert "secret-nonsense" not in str(refused.value)


def _fault(url: str) -> None:
    """Make a workload lose its graphs, and keep doing so until its incident is open."""
    for number in range(30):
        window = eager_window(time.time_ns() - 5 * SECOND, random.Random(number), workload("pod-a"))
        assert web.post(f"{url}/v1/batches", content=body([window], f"k{number}"), headers=HEADERS).status_code == 200
        if json.loads(web.get(f"{url}/v1/incidents").text)["incidents"]:
            return
        time.sleep(0.3)


def _until(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
