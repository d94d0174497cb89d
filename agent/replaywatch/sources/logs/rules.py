"""A table of patterns and what to take from a line that matches: the form of every engine's reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.run import EngineRun

# A decimal number as engines print it; what it matches, float() takes.
DECIMAL = r"\d+(?:\.\d+)?"
Rule = tuple["re.Pattern[str]", Callable[["re.Match[str]", LogLine, EngineRun], None]]


def take_first(rules: Iterable[Rule], line: LogLine, run: EngineRun) -> bool:
    """Apply the first rule whose pattern is in the message; False when none is."""
    for pattern, take in rules:
        match = pattern.search(line.message)
        if match:
            take(match, line, run)
            return True
    return False


def take_all(rules: Iterable[Rule], line: LogLine, run: EngineRun) -> bool:
    """Apply every rule whose pattern is in the message; False when none is."""
    found = False
    for pattern, take in rules:
        match = pattern.search(line.message)
        if match:
            take(match, line, run)
            found = True
    return found
