"""What may leave a log: short sentences of the engine itself, never secrets, prompts or outputs."""

from __future__ import annotations

import re

MAX_DETAIL_CHARS = 400
_MASK = "***"
_SECRETS = (
    re.compile(r"\b(?:hf|gh[pousr]|xox[abprs]|glpat)[_-][A-Za-z0-9_-]{6,}"),
    re.compile(r"\b(?:sk|pk|nvapi)-[A-Za-z0-9_-]{8,}"),
    re.compile(r"\bAKIA[0-9A-Z]{12,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_.-]+"),
    re.compile(r"(?i)(?<=bearer )\S+"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(
        r"(?i)(?:(?<=api_key=)|(?<=api-key=)|(?<=api_key': )|(?<=token=)|(?<=token': )|(?<=password=)|(?<=secret=))"
        r"(?!None\b)[^\s,)}]+"
    ),
)
_HOME = re.compile(r"(?:/home|/Users)/[^/\s'\"]+")


def safe(text: str) -> str:
    """One line of at most 400 characters with secrets and home folders masked."""
    masked = " ".join(text[: 4 * MAX_DETAIL_CHARS].split())
    for pattern in _SECRETS:
        masked = pattern.sub(_MASK, masked)
    masked = _HOME.sub("~", masked)
    return masked if len(masked) <= MAX_DETAIL_CHARS else masked[: MAX_DETAIL_CHARS - 1] + "…"


def short_path(path: str) -> str:
    """The last two parts of a path: enough to find the code, without whose machine it was."""
    return "/".join(re.split(r"[/\\]", path)[-2:])
