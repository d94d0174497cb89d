from __future__ import annotations

import hashlib
import hmac
import logging
import random
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from collector import web
from collector.conftest import Start
from collector.material import HEADERS, SECOND, body, eager_window, workload
from collector.polling import until
from collector.rig import Rig
from collector.webhook_receiver import WebhookReceiver
from replaywatch.collector.notifier import ATTEMPTS_MAX, Notifier, pause_seconds
from replaywatch.collector.options import CollectorOptions, secret_of
from replaywatch.collector.outbox import outbox_counts
from replaywatch.collector.tables import NotificationRow
from replaywatch.contract.errors import ConfigurationError
from replaywatch.notify.signed_json import SignedJson

SECRET = "whsec-0123456789"


@pytest.fixture
def notifier(rig: Rig, receiver: WebhookReceiver) -> Notifier:
    return notifier_of(rig, receiver.url)


def notifier_of(rig: Rig, url: str) -> Notifier:
    return Notifier(rig.store, rig.writer, [SignedJson(url, SECRET)], rig.clock, lambda: 0.5, allow_private=True)


def counts(rig: Rig) -> dict[str, int]:
    with rig.store.session() as session:
        return outbox_counts(session)


def test_each_event_arrives_exactly_once(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    for says, ticks in (("warn", 4), ("page", 4), ("healthy", 8)):
        for _ in range(ticks):
            rig.tick(says)
            notifier.deliver_due()
    assert [r.content["event"] for r in receiver.received] == ["opened", "raised", "closed"]
    assert len({r.headers["Idempotency-Key"] for r in receiver.received}) == 3
    assert counts(rig) == {"sent": 3}


def test_a_message_says_what_it_costs_and_what_to_do(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    content = receiver.received[0].content
    assert content["schema_version"] == 1
    assert (content["detector"], content["severity"], content["title"]) == ("disabled", "page", "Graphs are off")
    assert content["cost"]["ratio"] == 0.4
    assert content["cost"]["saved_us"] == pytest.approx(4800)
    assert content["remedy"] == "remove --enforce-eager"
    assert content["workload"]["pod"] == "pod-a"
    assert content["links"]["incident"] == "http://collector.example/incidents/1"
    assert content["idempotency_key"] == receiver.received[0].headers["Idempotency-Key"]


def test_the_signature_can_be_checked(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    got = receiver.received[0]
    stamp, given = (part.split("=")[1] for part in got.headers["Replaywatch-Signature"].split(","))
    wanted = hmac.new(SECRET.encode(), stamp.encode() + b"." + got.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(wanted, given)
    assert int(stamp) == rig.clock() // SECOND


def test_a_failing_receiver_is_tried_again_later_with_the_same_key(
    rig: Rig, notifier: Notifier, receiver: WebhookReceiver
) -> None:
    receiver.answers = [(500, {}), (503, {})]
    rig.tick("page", ticks=2)
    assert notifier.deliver_due() == 1
    assert notifier.deliver_due() == 0
    rig.clock.advance(10)
    notifier.deliver_due()
    rig.clock.advance(10)
    notifier.deliver_due()
    assert len({r.headers["Idempotency-Key"] for r in receiver.received}) == 1
    assert len(receiver.received) == 3
    assert counts(rig) == {"sent": 1}
    rig.clock.advance(3600)
    assert notifier.deliver_due() == 0


def test_a_restart_neither_loses_nor_repeats(rig: Rig, receiver: WebhookReceiver) -> None:
    receiver.answers = [(500, {})]
    rig.tick("page", ticks=2)
    notifier_of(rig, receiver.url).deliver_due()
    rig.restart()
    rig.clock.advance(10)
    notifier_of(rig, receiver.url).deliver_due()
    assert counts(rig) == {"sent": 1}
    rig.restart()
    rig.clock.advance(3600)
    assert notifier_of(rig, receiver.url).deliver_due() == 0


def test_an_attempt_is_counted_before_it_is_made(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    seen: list[int] = []

    def look() -> None:
        with rig.store.session() as session:
            seen.extend(session.scalars(select(NotificationRow.attempts)))

    receiver.on_request = look
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    assert seen == [1]


def test_a_receiver_that_never_answers_well_is_given_up(
    rig: Rig, notifier: Notifier, receiver: WebhookReceiver
) -> None:
    receiver.answers = [(500, {})] * 50
    rig.tick("page", ticks=2)
    for _ in range(50):
        rig.clock.advance(1000)
        notifier.deliver_due()
    assert len(receiver.received) == ATTEMPTS_MAX
    assert counts(rig) == {"dead": 1}


def test_a_receiver_that_is_gone_is_given_up_at_once(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    receiver.answers = [(410, {})]
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    assert counts(rig) == {"dead": 1}


def test_a_receiver_may_ask_for_a_longer_pause(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    receiver.answers = [(429, {"Retry-After": "120"})]
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    rig.clock.advance(119)
    assert notifier.deliver_due() == 0
    rig.clock.advance(2)
    assert notifier.deliver_due() == 1


def test_a_closing_does_not_overtake_its_opening(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    receiver.answers = [(500, {})]
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    with rig.store.session() as session, session.begin():
        for row in session.scalars(select(NotificationRow)):
            row.next_attempt_ns += 600 * SECOND
    rig.tick("healthy", ticks=6)
    assert notifier.deliver_due() == 0
    rig.clock.advance(700)
    notifier.deliver_due()
    notifier.deliver_due()
    assert [r.content["event"] for r in receiver.received] == ["opened", "opened", "closed"]


def test_redirects_are_not_followed(rig: Rig, notifier: Notifier, receiver: WebhookReceiver) -> None:
    receiver.answers = [(307, {"Location": receiver.url.replace("/hook", "/elsewhere")})]
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    assert [r.path for r in receiver.received] == ["/hook"]
    assert counts(rig) == {"sending": 1}


def test_pauses_grow_and_end() -> None:
    assert [pause_seconds(n, 1.0) for n in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert pause_seconds(1, 0.0) == 1
    assert pause_seconds(1000, 1.0) == 900
    assert pause_seconds(1, 0.0, 10_000) == 900


def test_the_whole_way_from_a_batch_to_a_webhook(start: Start, receiver: WebhookReceiver, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    handle = start(webhook_url=receiver.url, webhook_secret_file=path, public_url="https://rw.example/")
    who = workload("pod-a")
    for i in range(6):
        content = body([eager_window(time.time_ns() - 5 * SECOND, random.Random(i), who)], f"k{i}")
        assert web.post(f"{handle.url}/v1/batches", content=content, headers=HEADERS).status_code == 200
        ticks = handle.collector.detection.last_tick_ns or 0
        until(lambda seen=ticks: (handle.collector.detection.last_tick_ns or 0) > seen)
    until(lambda: bool(receiver.received))
    by_detector = {r.content["detector"]: r.content for r in receiver.received}
    assert by_detector["disabled"]["event"] == "opened"
    assert by_detector["disabled"]["cost"]["low"] > 0.5
    assert by_detector["disabled"]["links"]["incident"].startswith("https://rw.example/incidents/")


@pytest.mark.parametrize(
    "url", ["ftp://x/y", "file:///etc/passwd", "javascript:alert(1)", "http://", "x", "http://[", ""]
)
def test_addresses_that_are_not_web_addresses_are_refused(start: Start, url: str) -> None:
    with pytest.raises(ConfigurationError, match="webhook-url"):
        start(webhook_url=url)


def test_secrets_show_up_in_no_log_and_no_text(
    rig: Rig, receiver: WebhookReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address = receiver.url + "-with-secret-path"
    receiver.answers = [(500, {})]
    rig.tick("page", ticks=2)
    notifier = notifier_of(rig, address)
    notifier.deliver_due()
    notifier_of(rig, "http://127.0.0.1:9/other-secret-path").deliver_due()
    rig.clock.advance(10)
    notifier_of(rig, "http://127.0.0.1:9/other-secret-path").deliver_due()
    with rig.store.session() as session:
        (error,) = session.scalars(select(NotificationRow.last_error))
    assert error is not None
    told = caplog.text + error + repr(notifier) + repr(SignedJson(address, SECRET))
    assert receiver.received
    assert SECRET not in told
    assert "secret-path" not in told


def test_a_secret_is_never_part_of_the_options_text(tmp_path: Path) -> None:
    shown = repr(CollectorOptions(token="token-9876", webhook_secret=SECRET))
    assert "token-9876" not in shown
    assert SECRET not in shown
    with pytest.raises(ConfigurationError, match="cannot be read"):
        secret_of(None, tmp_path / "missing", "bearer token")
    with pytest.raises(ConfigurationError, match="is empty"):
        secret_of("  ", None, "bearer token")
