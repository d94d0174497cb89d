"""Times that requests name."""

from __future__ import annotations

from datetime import datetime, timezone

from replaywatch.contract.errors import ConfigurationError

LAST_NS = 1 << 62


def parse_time_ns(text: str, name: str) -> int:
    """Unix nanoseconds from Unix seconds or an RFC 3339 time. Raises: ConfigurationError, naming the parameter."""
    try:
        ns = int(float(text) * 1e9)
    except (ValueError, OverflowError):
        ns = _from_rfc3339(text, name)
    if not 0 <= ns < LAST_NS:
        raise ConfigurationError(f"{name} is out of range")
    return ns


def _from_rfc3339(text: str, name: str) -> int:
    try:
        stamp = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if stamp.tzinfo is None:
            stamp = stamp.replace(tzinfo=timezone.utc)
        return int(stamp.timestamp() * 1e9)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{name} must be Unix seconds or a time such as 2026-01-31T12:00:00Z") from None
