"""How long to wait before the next try: doubling, with jitter, so that a fleet does not come back all at once."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from random import Random
from typing import Final

FIRST_SECONDS: Final = 1.0
LONGEST_ASKED_SECONDS: Final = 3600.0


class Backoff:
    """Pauses of 50 to 100 % of 1, 2, 4, ... seconds up to a limit."""

    def __init__(self, limit_s: float, random: Random) -> None:
        self._limit_s = limit_s
        self._random = random
        self._failures = 0

    def next_pause_s(self, asked_s: float | None = None) -> float:
        """The pause after one more failure, at least what the other side asked for."""
        full = min(self._limit_s, FIRST_SECONDS * 2.0 ** min(self._failures, 30))
        self._failures += 1
        own = full * self._random.uniform(0.5, 1)
        if asked_s is None:
            return own
        # Some jitter on top: everybody was asked to come back at the same moment.
        return max(own, min(asked_s, LONGEST_ASKED_SECONDS) * self._random.uniform(1, 1.1))

    def reset(self) -> None:
        """It worked: the next failure waits briefly again."""
        self._failures = 0


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Seconds that a Retry-After header asks for, given as seconds or as a date; None when it says neither."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:9]), LONGEST_ASKED_SECONDS))
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None
