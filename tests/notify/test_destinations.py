"""Each destination against a strict receiver: forms, limits, answers, secrets."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings

from notify.made import AT, any_notice, notice
from notify.pagerduty_rules import pagerduty_faults
from notify.receiver import Check, StrictReceiver
from notify.slack_rules import slack_faults
from notify.teams_rules import teams_faults
from replaywatch.notify import pagerduty, slack, teams
from replaywatch.notify.destination import Destination, Outcome, deliver, is_told
from replaywatch.notify.notice import Notice
from replaywatch.notify.pagerduty import PagerDuty
from replaywatch.notify.signed_json import SignedJson
from replaywatch.notify.slack import Slack
from replaywatch.notify.teams import Teams
from replaywatch.notify.trial import send_trials

KEY = "0123456789abcdef0123456789abcdef"
SECRET_PATH = "/T000/B000/sEcReTsEcReT"
NOW = 1_800_000_000


def slack_receiver() -> StrictReceiver:
    return StrictReceiver(slack_faults, (200, "ok"), (400, "invalid_blocks"))


def pagerduty_receiver() -> StrictReceiver:
    return StrictReceiver(pagerduty_faults, (202, '{"status":"success"}'), (400, '{"status":"invalid event"}'))


def teams_receiver() -> StrictReceiver:
    return StrictReceiver(teams_faults, (202, ""), (400, "Bad request"))


def json_receiver() -> StrictReceiver:
    return StrictReceiver(lambda content: [] if content["schema_version"] == 1 else ["schema_version"])


MAKERS: dict[str, tuple[Any, Any]] = {
    "slack": (slack_receiver, lambda url: Slack(url + SECRET_PATH)),
    "pagerduty": (pagerduty_receiver, lambda url: PagerDuty(KEY, url + "/v2/enqueue")),
    "teams": (teams_receiver, lambda url: Teams(url + SECRET_PATH)),
    "webhook": (json_receiver, lambda url: SignedJson(url + SECRET_PATH, "whsec")),
}


@pytest.fixture(params=MAKERS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[StrictReceiver, Destination]]:
    make_receiver, make = MAKERS[request.param]
    with make_receiver() as receiver:
        yield receiver, make(receiver.url)


def send(destination: Destination, one: Notice) -> Outcome:
    with httpx.Client(timeout=5) as client:
        return deliver(client, destination, one, NOW)


def events() -> list[Notice]:
    closed = notice(event="closed", incident={"closed_at": AT, "state": "closed", "open_members": 0})
    return [notice(), notice(event="raised"), notice(event="grown", incident={"members": 400}), closed]


def test_every_event_is_accepted(pair: tuple[StrictReceiver, Destination]) -> None:
    receiver, destination = pair
    for one in events():
        assert send(destination, one) == Outcome(True)
    assert len(receiver.contents) == 4


def test_a_message_says_verdict_cost_cause_remedy_and_where_to_look(pair: tuple[StrictReceiver, Destination]) -> None:
    receiver, destination = pair
    send(destination, notice())
    text = str(receiver.contents[0])
    for part in ("CUDA Graphs are off", "--enforce-eager is set", "remove --enforce-eager", "chat-7d9f4", "GPU-1"):
        assert part in text
    assert "http://collector.example/incidents/42" in text
    assert "http://docs.example/alerts.md#cudagraphdisabled" in text
    assert "41%" in text or "0.41" in text


@pytest.mark.parametrize("check", [slack_faults, pagerduty_faults, teams_faults])
@settings(max_examples=60, deadline=None)
@given(one=any_notice())
def test_no_text_makes_a_message_that_is_refused(check: Check, one: Notice) -> None:
    content = {
        slack_faults: lambda: slack.message(one),
        pagerduty_faults: lambda: pagerduty.event(one, KEY),
        teams_faults: lambda: teams.message(one),
    }[check]()
    assert check(content) == []


@given(one=any_notice())
def test_slack_blocks_stay_below_their_own_limit(one: Notice) -> None:
    content = slack.message(one)
    assert sum(len(str(block)) for block in content["blocks"]) < slack.BLOCKS_MAX_CHARACTERS


def test_a_busy_receiver_is_tried_again_when_it_says(pair: tuple[StrictReceiver, Destination]) -> None:
    receiver, destination = pair
    receiver.faults = [(429, "rate_limited", {"Retry-After": "30"}), (503, "", {})]
    busy, broken = send(destination, notice()), send(destination, notice())
    assert (busy.delivered, busy.is_final, busy.retry_after_seconds) == (False, False, 30)
    assert (broken.delivered, broken.is_final) == (False, False)


def test_a_receiver_that_is_gone_is_not_tried_again(pair: tuple[StrictReceiver, Destination]) -> None:
    receiver, destination = pair
    receiver.faults = [(410, "no_service", {})]
    assert send(destination, notice()).is_final


@pytest.mark.parametrize("name", ["slack", "pagerduty", "teams"])
def test_a_message_that_is_refused_for_good_is_not_tried_again_and_says_why(name: str) -> None:
    make_receiver, make = MAKERS[name]
    with make_receiver() as receiver:
        receiver.faults = [(403, "action_prohibited", {})]
        outcome = send(make(receiver.url), notice())
    assert outcome.is_final
    assert "403: action_prohibited" in str(outcome.error)


def test_nobody_there_is_an_outcome(pair: tuple[StrictReceiver, Destination]) -> None:
    _, make = MAKERS[pair[1].name]
    outcome = send(make("http://127.0.0.1:1"), notice())
    assert "cannot be reached" in str(outcome.error)
    assert not outcome.is_final


def test_secrets_are_in_no_representation_error_or_log(
    pair: tuple[StrictReceiver, Destination], caplog: pytest.LogCaptureFixture
) -> None:
    receiver, destination = pair
    caplog.set_level(logging.DEBUG, "replaywatch")
    echo = f"no such key {KEY} at {receiver.url}{SECRET_PATH} with whsec"
    receiver.faults = [(400, echo, {})]
    outcome = send(destination, notice())
    told = f"{destination!r} {outcome!r} {destination.posting(notice(), NOW)!r} {caplog.text}"
    assert not [secret for secret in destination.secrets if secret and secret in told]


def test_redirects_are_not_followed(pair: tuple[StrictReceiver, Destination]) -> None:
    receiver, destination = pair
    receiver.faults = [(307, "", {"Location": receiver.url + "/elsewhere"})]
    assert not send(destination, notice()).delivered
    assert len(receiver.received) == 1


def test_pagerduty_gets_one_incident_for_all_events_of_one_here() -> None:
    with pagerduty_receiver() as receiver:
        for one in events():
            send(PagerDuty(KEY, receiver.url), one)
        send(PagerDuty(KEY, receiver.url), notice(incident={"id": 43}, links={"incident": "http://c/incidents/43"}))
    actions = [c["event_action"] for c in receiver.contents]
    keys = [c["dedup_key"] for c in receiver.contents]
    assert actions == ["trigger", "trigger", "trigger", "resolve", "trigger"]
    assert len(set(keys[:4])) == 1
    assert keys[4] != keys[0]
    assert [c["payload"]["severity"] for c in receiver.contents if "payload" in c] == ["critical"] * 4


def test_severities_decide_who_is_told_and_ends_follow_the_worst() -> None:
    paging, chat = PagerDuty(KEY), Slack("http://x")
    warned = notice(severity="warn", incident={"worst_severity": "warn"})
    was_paged = notice(event="closed", severity="warn", incident={"worst_severity": "page", "closed_at": AT})
    assert not is_told(paging, warned)
    assert is_told(chat, warned)
    assert is_told(paging, was_paged)
    assert not is_told(chat, notice(severity="info", incident={"worst_severity": "info"}))


def test_what_graphs_do_not_bring_back_is_not_promised() -> None:
    cost = {"ratio": 0.3, "low": 0.2, "high": 0.4, "is_recoverable": False}
    text = str(slack.message(notice(cost=cost)))
    assert "Graphs do not bring that back" in text
    assert "won back" not in text
    assert "not known" in str(slack.message(notice(cost=None)))


def test_the_signature_is_over_time_and_body() -> None:
    one = notice()
    posting = SignedJson("http://x", "whsec").posting(one, NOW)
    stamp, given_digest = (part.split("=")[1] for part in posting.headers["Replaywatch-Signature"].split(","))
    wanted = hmac.new(b"whsec", f"{NOW}.".encode() + posting.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(wanted, given_digest)
    assert int(stamp) == NOW
    assert posting.body.decode() == one.document


def test_a_trial_opens_and_closes_and_says_what_came_back(pair: tuple[StrictReceiver, Destination]) -> None:
    receiver, destination = pair
    nobody = Slack("http://127.0.0.1:1/x", name="nobody")
    (good, bad) = send_trials([destination, nobody], NOW, public_url="http://c.example", runbooks="http://d.example")
    assert (good.destination, good.outcome) == (destination.name, Outcome(True))
    assert (bad.destination, bad.outcome.delivered) == ("nobody", False)
    assert len(receiver.contents) == 2
    if destination.name != "pagerduty":
        assert "test" in str(receiver.contents[1]).lower()
    assert "test" in str(receiver.contents[0]).lower()
