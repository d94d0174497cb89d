"""Microsoft Teams: an Adaptive Card through a workflow's webhook ("when a Teams webhook request is received").

The connector's reference gives about 28 KB a message; texts are cut so that a card stays far below. Cards are of
version 1.4, which all clients of Teams show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from replaywatch.contract.verdict import Severity
from replaywatch.notify import telling
from replaywatch.notify.destination import Outcome, Posting, is_success, refused
from replaywatch.notify.notice import Notice

MESSAGE_MAX_BYTES: Final = 28 * 1024
_PART_MAX: Final = 1200
_COLORS: Final = {"page": "attention", "warn": "warning", "info": "accent", "none": "default"}
Element = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Teams:
    """Posts to a workflow, whose address is the secret."""

    url: str = field(repr=False)
    least: Severity = "warn"
    name: str = "teams"
    is_inside: bool = False

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen."""
        return (self.url,)

    def wants(self, notice: Notice) -> bool:
        """Everything."""
        return True

    def posting(self, notice: Notice, unix_seconds: int) -> Posting:
        """The message."""
        return Posting(self.url, json.dumps(message(notice)).encode())

    def outcome(self, status: int, answer: str, headers: Mapping[str, str]) -> Outcome:
        """A workflow answers 202 before it has posted: that the card was shown is never known."""
        return Outcome(True) if is_success(status) else refused(status, answer, headers)


def message(notice: Notice) -> dict[str, Any]:
    """The message with its card."""
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card(notice),
    }
    return {"type": "message", "attachments": [attachment]}


def card(notice: Notice) -> dict[str, Any]:
    """The card."""
    color = "good" if notice.event == "closed" else _COLORS[notice.severity]
    body: list[Element] = [
        {**_text(telling.headline(notice)), "size": "large", "weight": "bolder", "color": color},
        _text(telling.cost(notice)),
        {"type": "FactSet", "facts": [{"title": n, "value": telling.cut(v, 300)} for n, v in telling.facts(notice)]},
    ]
    if notice.event != "closed":
        if cause := telling.cause(notice):
            body.append(_text(f"Cause: {cause}"))
        if notice.remedy:
            body.append(_text(f"To do: {notice.remedy}"))
    if evidence := telling.evidence(notice):
        body.append({**_text(evidence), "isSubtle": True, "size": "small"})
    return {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": name, "url": url} for name, url in telling.links(notice)],
    }


def _text(text: str) -> Element:
    return {"type": "TextBlock", "text": _without_markup(telling.cut(text, _PART_MAX)), "wrap": True}


def _without_markup(text: str) -> str:
    """Text that the card's Markdown leaves alone."""
    for sign in ("\\", "*", "_", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text
