"""Slack: Block Kit through an incoming webhook.

Limits, from Slack's reference of blocks and composition objects: 50 blocks a message, 150 characters a header, 3000 a
section's text, 10 fields of 2000, 10 elements a context. All blocks together must stay below about 13,000 characters,
which the reference does not say (slackapi/bolt-js 2509). Links stand in the text rather than on buttons, since buttons
want an app that answers interactions.
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

HEADER_MAX: Final = 150
SECTION_MAX: Final = 3000
FIELD_MAX: Final = 2000
BLOCKS_MAX_CHARACTERS: Final = 12_000
# What each part may take, escaped, so that the sum stays below the limit that nobody documents.
_PART_MAX: Final = 1000
_VALUE_MAX: Final = 250
_MARKS: Final = {"page": ":rotating_light:", "warn": ":warning:", "info": ":information_source:", "none": ""}
Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Slack:
    """Posts to an incoming webhook, whose address is the secret."""

    url: str = field(repr=False)
    least: Severity = "warn"
    name: str = "slack"
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
        """Slack says why in one word: invalid_blocks, channel_is_archived, no_service."""
        return Outcome(True) if is_success(status) else refused(status, answer, headers)


def message(notice: Notice) -> dict[str, Any]:
    """The payload. `text` is what notifications and screen readers show."""
    mark = ":white_check_mark:" if notice.event == "closed" else _MARKS[notice.severity]
    head = telling.cut(f"{mark} {telling.headline(notice)}", HEADER_MAX)
    blocks: list[Block] = [
        {"type": "header", "text": {"type": "plain_text", "text": head, "emoji": True}},
        _section(_shown(telling.cost(notice), _PART_MAX)),
        {"type": "section", "fields": [_field(*fact) for fact in telling.facts(notice)]},
    ]
    if notice.event != "closed":
        if cause := telling.cause(notice):
            blocks.append(_section(f"*Cause.* {_shown(cause, _PART_MAX)}"))
        if notice.remedy:
            blocks.append(_section(f"*To do.* {_shown(notice.remedy, _PART_MAX)}"))
    if links := telling.links(notice):
        blocks.append(_section("  ·  ".join(f"<{_address(url)}|{name}>" for name, url in links)))
    if evidence := telling.evidence(notice):
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": _shown(evidence, _PART_MAX)}]})
    return {"text": _shown(telling.plain(notice), _PART_MAX), "blocks": blocks}


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _field(name: str, value: str) -> Block:
    return {"type": "mrkdwn", "text": f"*{name}*\n{_shown(value, _VALUE_MAX)}"}


def _shown(text: str, limit: int) -> str:
    """The text with the three characters escaped that Slack wants escaped, cut to a length after that."""
    short = telling.cut(text, limit)
    while len(escaped := _escaped(short)) > limit:
        short = telling.cut(short, max(1, len(short) - max(1, (len(escaped) - limit) // 5)))
    return escaped


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _address(url: str) -> str:
    return url.replace("&", "&amp;").replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
