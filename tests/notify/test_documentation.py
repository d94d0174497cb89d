"""docs/notifications.md names every option, state and event that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from notify.made import document
from replaywatch.collector.notify_options import NOTIFY_OPTIONS
from replaywatch.collector.options import COMMAND
from replaywatch.collector.outbox import STATES
from replaywatch.notify.notice import EVENTS

PAGE = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text()


def test_every_option_is_described() -> None:
    for option in NOTIFY_OPTIONS:
        shown = option.variable(COMMAND) if option.secret else f"--{option.name}"
        assert shown in PAGE or option.name == "runbook-url", shown


def test_every_state_and_event_is_named() -> None:
    assert all(re.search(rf"\b{word}\b", PAGE) for word in (*STATES, *EVENTS))


def test_the_documented_document_has_the_fields_of_a_real_one() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.S)
    shown = json.loads(block)
    assert set(shown) == set(document())
    assert set(shown["incident"]) == set(document()["incident"])
    assert set(shown["links"]) == set(document()["links"])
