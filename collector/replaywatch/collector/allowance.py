"""How much a token may send: a rate with a burst, and a quota a day. Counted by each process for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replaywatch.collector.tokens import Token

BURST_SECONDS: Final = 10.0
DAY_NS: Final = 24 * 3600 * 10**9
_KNOWN_MAX: Final = 10_000


@dataclass(slots=True)
class _Account:
    left: float
    at_ns: int
    day: int
    today: int = 0


@dataclass(frozen=True, slots=True)
class Denied:
    """What was exceeded, and when trying again helps."""

    reason: str
    retry_seconds: int


class Allowances:
    """The accounts of all tokens with limits; used by the web thread only."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def take(self, token: Token | None, windows: int, now_ns: int) -> Denied | None:
        """Book some windows on a token; what stands against it, and then nothing is booked."""
        if token is None or (token.windows_per_second is None and token.windows_per_day is None):
            return None
        account = self._account(token, now_ns)
        if token.windows_per_day is not None and account.today + windows > token.windows_per_day:
            return Denied(f"the token may send {token.windows_per_day} windows a day", _until_tomorrow(now_ns))
        rate = token.windows_per_second
        if rate is not None:
            account.left = min(rate * BURST_SECONDS, account.left + rate * (now_ns - account.at_ns) / 1e9)
            account.at_ns = now_ns
            # A batch larger than the whole burst is let through on a full account, and paid off afterwards.
            if account.left < min(windows, rate * BURST_SECONDS):
                wait = (min(windows, rate * BURST_SECONDS) - account.left) / rate
                return Denied(f"the token may send {rate:g} windows a second", max(1, round(wait + 0.5)))
            account.left -= windows
        account.today += windows
        return None

    def _account(self, token: Token, now_ns: int) -> _Account:
        if len(self._accounts) > _KNOWN_MAX:
            self._accounts.clear()
        day = now_ns // DAY_NS
        account = self._accounts.get(token.id)
        if account is None:
            full = (token.windows_per_second or 0.0) * BURST_SECONDS
            account = self._accounts[token.id] = _Account(full, now_ns, day)
        if account.day != day:
            account.day, account.today = day, 0
        return account


def _until_tomorrow(now_ns: int) -> int:
    return max(1, (DAY_NS - now_ns % DAY_NS) // 10**9)
