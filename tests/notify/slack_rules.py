"""What Slack's reference of incoming webhooks, blocks and composition objects asks for, as a check."""

from __future__ import annotations

import re
from typing import Any

# Block by its fields: name, required, check.
TEXTS = {"header": (1, 150), "section": (1, 3000), "field": (1, 2000), "context": (1, 3000)}
KNOWN = {
    "header": {"type", "text", "block_id"},
    "section": {"type", "text", "block_id", "fields", "accessory", "expand"},
    "context": {"type", "elements", "block_id"},
    "divider": {"type", "block_id"},
}


def slack_faults(content: Any) -> list[str]:
    """Why Slack would refuse the message; empty when it would not."""
    if not isinstance(content, dict):
        return ["no object"]
    found = [f"unknown {k}" for k in set(content) - {"text", "blocks", "attachments", "thread_ts", "mrkdwn"}]
    if not isinstance(content.get("text"), str) or not content["text"]:
        found.append("no_text")
    elif len(content["text"]) > 40_000:
        found.append("msg_too_long")
    blocks = content.get("blocks")
    if not isinstance(blocks, list) or not 1 <= len(blocks) <= 50:
        return [*found, "blocks must be 1 to 50"]
    for number, block in enumerate(blocks):
        found += [f"block {number}: {fault}" for fault in _block(block)]
    # Not in the reference; seen as msg_blocks_too_long at about 13,000 (slackapi/bolt-js 2509).
    if sum(len(t) for b in blocks for t in _texts(b)) > 13_000:
        found.append("msg_blocks_too_long")
    return found


def _block(block: Any) -> list[str]:
    kind = block.get("type")
    if kind not in KNOWN:
        return [f"unsupported type {kind}"]
    found = [f"unknown {k}" for k in set(block) - KNOWN[kind]]
    if kind == "header":
        return found + _text(block.get("text"), "header", {"plain_text"})
    if kind == "context":
        elements = block.get("elements") or []
        found += [] if 1 <= len(elements) <= 10 else ["elements must be 1 to 10"]
        return found + [f for e in elements for f in _text(e, "context", {"plain_text", "mrkdwn"})]
    if kind == "section":
        if "text" not in block and "fields" not in block:
            found.append("text or fields")
        if "text" in block:
            found += _text(block["text"], "section", {"plain_text", "mrkdwn"})
        fields = block.get("fields")
        if fields is not None:
            found += [] if 1 <= len(fields) <= 10 else ["fields must be 1 to 10"]
            found += [f for e in fields for f in _text(e, "field", {"plain_text", "mrkdwn"})]
    return found


def _text(text: Any, where: str, kinds: set[str]) -> list[str]:
    if not isinstance(text, dict) or text.get("type") not in kinds or not isinstance(text.get("text"), str):
        return [f"{where} is no text of {kinds}"]
    least, most = TEXTS[where]
    found = [] if least <= len(text["text"]) <= most else [f"{where} has {len(text['text'])} characters"]
    allowed = {"type", "text", "emoji"} if text["type"] == "plain_text" else {"type", "text", "verbatim"}
    found += [f"{where}: unknown {k}" for k in set(text) - allowed]
    if text["type"] == "mrkdwn":
        # After taking entities and links away no control character of the markup may be left.
        rest = re.sub(r"<https?://[^<>|]*\|[^<>]*>|&(?:amp|lt|gt);", "", text["text"])
        found += [f"{where}: unescaped {c}" for c in "<>&" if c in rest]
    return found


def _texts(block: Any) -> list[str]:
    parts = [block.get("text"), *(block.get("fields") or []), *(block.get("elements") or [])]
    return [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]
