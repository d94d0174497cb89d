"""Pauses grow, are never in step, end at a limit, and do what the other side asks."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from replaywatch.agent.backoff import LONGEST_ASKED_SECONDS, Backoff, retry_after_s


def test_pauses_double_up_to_the_limit_and_begin_again_after_success() -> None:
    backoff = Backoff(60, Random(1))
    pauses = [backoff.next_pause_s() for _ in range(12)]
    for n, pause in enumerate(pauses):
        full = min(60, 2**n)
        assert full / 2 <= pause <= full
    backoff.reset()
    assert backoff.next_pause_s() <= 1


def test_a_fleet_does_not_come_back_at_once() -> None:
    pauses = {round(Backoff(60, Random(seed)).next_pause_s(10), 3) for seed in range(100)}
    assert len(pauses) > 50
    assert min(pauses) >= 10


def test_a_pause_of_years_is_not_waited_for() -> None:
    assert Backoff(60, Random(1)).next_pause_s(1e12) <= LONGEST_ASKED_SECONDS * 1.1


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_s("7", 0) == 7
    assert retry_after_s("Thu, 01 Jan 1970 00:01:40 GMT", 40) == 60
    assert retry_after_s("Thu, 01 Jan 1970 00:00:00 GMT", 40) == 0
    assert retry_after_s(None, 0) is None
    assert retry_after_s("soon", 0) is None


@given(st.text())
def test_any_header_is_a_pause_or_none(text: str) -> None:
    pause = retry_after_s(text, 0)
    assert pause is None or pause >= 0
