"""What a Teams workflow and the Adaptive Cards 1.4 schema ask of a message, as a check of the parts that are used."""

from __future__ import annotations

import json
from typing import Any

COLORS = {"default", "dark", "light", "accent", "good", "warning", "attention"}
SIZES = {"default", "small", "medium", "large", "extraLarge"}
WEIGHTS = {"default", "lighter", "bolder"}
TEXT_BLOCK = {"type", "text", "wrap", "size", "weight", "color", "isSubtle", "maxLines", "spacing", "separator"}


def teams_faults(content: Any) -> list[str]:
    """Why a workflow or a client would refuse the message; empty when none would."""
    if not isinstance(content, dict) or content.get("type") != "message" or set(content) != {"type", "attachments"}:
        return ["a message with attachments"]
    found = [] if len(json.dumps(content).encode()) <= 28 * 1024 else ["larger than 28 KB"]
    attachments = content["attachments"]
    if not isinstance(attachments, list) or len(attachments) != 1:
        return [*found, "one attachment"]
    (one,) = attachments
    if one.get("contentType") != "application/vnd.microsoft.card.adaptive":
        found.append("contentType")
    return found + _card(one.get("content"))


def _card(card: Any) -> list[str]:
    if not isinstance(card, dict):
        return ["no card"]
    found = [f"unknown {k}" for k in set(card) - {"$schema", "type", "version", "body", "actions", "fallbackText"}]
    if card.get("type") != "AdaptiveCard" or card.get("version") != "1.4":
        found.append("type or version")
    for element in card.get("body", []):
        found += {"TextBlock": _text, "FactSet": _facts}.get(element.get("type"), lambda e: ["type"])(element)
    actions = card.get("actions", [])
    if len(actions) > 6:
        found.append("at most six actions")
    for action in actions:
        if action.get("type") != "Action.OpenUrl" or set(action) != {"type", "title", "url"}:
            found.append("action")
        elif not action["url"].startswith(("http://", "https://")) or not action["title"]:
            found.append("address")
    return found


def _text(element: dict[str, Any]) -> list[str]:
    found = [f"TextBlock: unknown {k}" for k in set(element) - TEXT_BLOCK]
    if not isinstance(element.get("text"), str):
        found.append("TextBlock: text")
    for name, values in (("color", COLORS), ("size", SIZES), ("weight", WEIGHTS)):
        if name in element and element[name] not in values:
            found.append(f"TextBlock: {name} {element[name]}")
    return found


def _facts(element: dict[str, Any]) -> list[str]:
    facts = element.get("facts")
    if set(element) != {"type", "facts"} or not isinstance(facts, list) or not facts:
        return ["FactSet"]
    return [
        f"fact {f}" for f in facts if set(f) != {"title", "value"} or not all(isinstance(v, str) for v in f.values())
    ]
