from __future__ import annotations

import pytest

from collector.material import SECOND
from collector.rig import Rig
from collector.test_notifications import counts, notifier_of
from collector.webhook_receiver import WebhookReceiver
from replaywatch.collector.audit import read_audit
from replaywatch.collector.silences import Silence, add_silence, checked_matchers, end_silence
from replaywatch.contract.errors import ConfigurationError


def silence(rig: Rig, seconds: float = 600, starts: float = 0, kind: str = "silence", **matchers: str) -> Silence:
    now = rig.clock()
    return rig.writer.do(
        lambda s: add_silence(
            s,
            kind=kind,
            matchers=checked_matchers(matchers),
            starts_ns=now + int(starts * SECOND),
            ends_ns=now + int(seconds * SECOND),
            comment="",
            who="ann",
            at_ns=now,
        )
    )


def test_nobody_is_told_during_a_silence_and_everybody_after_it(rig: Rig, receiver: WebhookReceiver) -> None:
    silence(rig, 600, pod="pod-*")
    notifier = notifier_of(rig, receiver.url)
    rig.tick("page", ticks=2)
    assert len(rig.incidents("open")) == 1
    for _ in range(3):
        notifier.deliver_due()
    assert receiver.received == []
    rig.clock.advance(601)
    notifier.deliver_due()
    assert [r.content["event"] for r in receiver.received] == ["opened"]


def test_what_opened_and_closed_unheard_is_never_told(rig: Rig, receiver: WebhookReceiver) -> None:
    silence(rig, 600, kind="maintenance", namespace="serving")
    notifier = notifier_of(rig, receiver.url)
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    rig.tick("healthy", ticks=6)
    notifier.deliver_due()
    rig.clock.advance(601)
    for _ in range(3):
        notifier.deliver_due()
    assert receiver.received == []
    assert set(counts(rig)) == {"silenced"}


@pytest.mark.parametrize(
    "matchers", [{"pod": "pod-b"}, {"pod": "pod-a", "severity": "warn"}, {"detector": "overflow"}, {"node": "?"}]
)
def test_a_silence_that_does_not_match_silences_nothing(
    rig: Rig, receiver: WebhookReceiver, matchers: dict[str, str]
) -> None:
    silence(rig, **matchers)
    rig.tick("page", ticks=2)
    notifier_of(rig, receiver.url).deliver_due()
    assert len(receiver.received) == 1


def test_a_maintenance_window_begins_when_it_was_planned_to(rig: Rig, receiver: WebhookReceiver) -> None:
    silence(rig, 7200, starts=3600, kind="maintenance", pod="*")
    notifier = notifier_of(rig, receiver.url)
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    assert len(receiver.received) == 1
    rig.clock.advance(3600)
    rig.tick("healthy", ticks=6)
    notifier.deliver_due()
    assert len(receiver.received) == 1
    rig.clock.advance(3600)
    notifier.deliver_due()
    assert [r.content["event"] for r in receiver.received] == ["opened", "closed"]


def test_a_silence_can_be_ended_early(rig: Rig, receiver: WebhookReceiver) -> None:
    made = silence(rig, 86400, pod="*")
    notifier = notifier_of(rig, receiver.url)
    rig.clock.advance(5)
    ended = rig.writer.do(lambda s: end_silence(s, made.id, "bob", rig.clock()))
    assert ended is not None
    rig.tick("page", ticks=2)
    notifier.deliver_due()
    assert len(receiver.received) == 1
    with rig.store.session() as session:
        lines = read_audit(session, 10, None)
    assert [(line.who, line.action) for line in lines] == [("bob", "silence ended"), ("ann", "silence added")]


@pytest.mark.parametrize(
    "given", [None, {}, [], {"nonsense": "x"}, {"pod": ""}, {"pod": 3}, {"pod": "x" * 201}, {"__class__": "x"}]
)
def test_matchers_that_cannot_work_are_refused(given: object) -> None:
    with pytest.raises(ConfigurationError):
        checked_matchers(given)


def test_a_silence_in_the_past_or_without_end_is_refused(rig: Rig) -> None:
    for seconds, starts in ((-10.0, -20.0), (10.0, 20.0), (400 * 86400.0, 0.0)):
        with pytest.raises(ConfigurationError, match="end after its start"):
            silence(rig, seconds, starts, pod="x")
