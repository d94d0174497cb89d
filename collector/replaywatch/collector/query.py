"""Reading what a request asks for: query parameters and JSON bodies, each checked."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request

from replaywatch.collector.times import parse_time_ns
from replaywatch.contract.errors import ConfigurationError

LAST_ID: Final = (1 << 63) - 1
TEXT_MAX: Final = 200
BODY_MAX: Final = 1 << 16


def number(request: Request, name: str, default: int, greatest: int, least: int = 0) -> int:
    """A whole number. Raises: ConfigurationError."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= greatest):
        raise ConfigurationError(f"{name} must be a whole number from {least} to {greatest}")
    return int(text)


def text_of(request: Request, name: str) -> str | None:
    """A text that a database can hold; None when it is not given. Raises: ConfigurationError."""
    text = request.query_params.get(name)
    return None if text is None else checked_text(text, name)


def checked_text(text: object, name: str, longest: int = TEXT_MAX) -> str:
    """A text without NUL and lone surrogates. Raises: ConfigurationError."""
    if not isinstance(text, str) or len(text) > longest or "\x00" in text or not text.isprintable():
        raise ConfigurationError(f"{name} must be a text of at most {longest} printable characters")
    return text


def one_of(request: Request, name: str, allowed: tuple[str, ...]) -> str | None:
    """One of some words; None when it is not given. Raises: ConfigurationError."""
    text = request.query_params.get(name)
    if text is not None and text not in allowed:
        raise ConfigurationError(f"{name} must be one of {', '.join(allowed)}")
    return text


def many_of(request: Request, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Any of some words. Raises: ConfigurationError."""
    texts = tuple(request.query_params.getlist(name))
    if any(t not in allowed for t in texts):
        raise ConfigurationError(f"{name} must be one of {', '.join(allowed)}")
    return texts


def path_id(text: str) -> int | None:
    """The number in a path; None for what cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LAST_ID):
        return None
    return int(text)


def moment(given: object, name: str) -> int:
    """A time in Unix nanoseconds. Raises: ConfigurationError."""
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ConfigurationError(f"{name} must be a time, such as 2026-11-29T12:00:00Z or Unix seconds")
    return parse_time_ns(str(given), name)


async def json_body(request: Request) -> dict[str, Any]:
    """A small JSON object. Raises: ConfigurationError."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ConfigurationError("send the body as application/json")
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_MAX:
            raise ConfigurationError(f"the body is larger than {BODY_MAX} bytes")
    try:
        found = json.loads(bytes(content) or b"{}")
    except (ValueError, RecursionError):
        raise ConfigurationError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise ConfigurationError("the body must be a JSON object")
    return found
