"""How graph memory grew since the first minutes."""

from __future__ import annotations

from typing import Final

from replaywatch.contract.record import record

# An engine captures its sizes in the first minutes, and lazily some more; growth counts from then on.
SETTLING_NS: Final = 600 * 10**9


@record(frozen=True, slots=True)
class PoolGrowth:
    """Graph memory when it had settled, its last value, how often it rose since, and captures since."""

    first_ns: int = 0
    settled_bytes: int | None = None
    last_bytes: int | None = None
    rises: int = 0
    captures: int = 0


def advance_growth(growth: PoolGrowth, pool_bytes: int | None, captured: int, at_ns: int) -> PoolGrowth:
    """The growth after one more window."""
    if pool_bytes is None:
        return growth
    first_ns = growth.first_ns or at_ns
    if at_ns - first_ns < SETTLING_NS or growth.settled_bytes is None:
        return PoolGrowth(first_ns, pool_bytes, pool_bytes)
    rose = pool_bytes > max(growth.settled_bytes, growth.last_bytes or 0)
    return PoolGrowth(
        first_ns, min(growth.settled_bytes, pool_bytes), pool_bytes, growth.rises + rose, growth.captures + captured
    )
