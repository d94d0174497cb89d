"""How many messages a destination gets a minute, so that a bad day does not become a flood."""

from __future__ import annotations

from dataclasses import dataclass, field

_MINUTE_NS = 60 * 10**9


@dataclass(slots=True)
class Allowance:
    """A token bucket that holds a minute's messages. Times are nanoseconds of a clock that does not matter."""

    per_minute: int
    _left: float = field(init=False)
    _at_ns: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._left = float(self.per_minute)

    def take(self, now_ns: int) -> bool:
        """Whether one more may go now; if so it is counted."""
        if self._at_ns is not None:
            passed = max(0, now_ns - self._at_ns)
            self._left = min(float(self.per_minute), self._left + self.per_minute * passed / _MINUTE_NS)
        self._at_ns = now_ns
        if self._left < 1:
            return False
        self._left -= 1
        return True
