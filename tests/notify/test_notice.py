"""Reading what waits in the outbox."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notify.made import document, notice
from replaywatch.contract.errors import WireError
from replaywatch.dashboards.finding_alerts import alert_name as alert_name_of_rules
from replaywatch.dashboards.rule import RuleSettings
from replaywatch.dashboards.rules import runbook_url
from replaywatch.detectors.catalogue import DETECTORS
from replaywatch.notify.alertmanager import alert_name
from replaywatch.notify.allowance import Allowance
from replaywatch.notify.notice import Notice, read_notice, runbook

SECOND = 10**9
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_a_notice_says_what_the_document_says() -> None:
    one = notice(incident={"members": 400, "open_members": 398})
    assert (one.event, one.severity, one.incident_id, one.members, one.open_members) == ("opened", "page", 42, 400, 398)
    assert one.cost is not None
    assert one.cost.saved_us == 4838
    assert one.links["dashboard"].startswith("http://grafana.example")


@given(st.text())
def test_any_text_is_a_notice_or_the_named_error(text: str) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(read_notice(text), Notice)


@given(st.sampled_from(sorted(document())), JSON)
def test_any_field_of_any_kind_is_a_notice_or_the_named_error(name: str, value: object) -> None:
    content = {**document(), name: value}
    with contextlib.suppress(WireError):
        assert isinstance(read_notice(json.dumps(content)), Notice)


def test_a_damaged_document_says_so() -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        read_notice("{}")


@pytest.mark.parametrize("detector", [d.name for d in DETECTORS])
def test_runbooks_and_names_are_those_of_the_rules(detector: str) -> None:
    name = alert_name_of_rules(detector)
    assert alert_name(detector) == name
    assert runbook("http://docs.example/", detector) == runbook_url(RuleSettings(runbooks="http://docs.example"), name)


@given(st.integers(1, 60), st.lists(st.integers(0, 90), max_size=60))
def test_no_minute_has_more_than_twice_the_allowance(per_minute: int, pauses: list[int]) -> None:
    allowance, now, taken = Allowance(per_minute), 0, []
    for pause in pauses:
        now += pause * SECOND
        if allowance.take(now):
            taken.append(now)
    for start in taken:
        assert sum(start <= at < start + 60 * SECOND for at in taken) <= 2 * per_minute


def test_an_allowance_comes_back_with_time() -> None:
    allowance = Allowance(2)
    assert [allowance.take(0), allowance.take(0), allowance.take(0)] == [True, True, False]
    assert allowance.take(30 * SECOND)
    assert not allowance.take(31 * SECOND)
