"""A short history of one share, for sparklines: fine while young, coarser with age, at most three hours long."""

from __future__ import annotations

from typing import Final

POINTS_MAX: Final = 120
FINEST_NS: Final = 5 * 10**9
COARSEST_NS: Final = 60 * 10**9


class Trail:
    """Means of a share over slots of one width, which doubles when the slots run out."""

    def __init__(self) -> None:
        self._width_ns = FINEST_NS
        self._slots: dict[int, tuple[float, int]] = {}

    def add(self, at_ns: int, share: float) -> None:
        """Count a share at a time, in any order of times."""
        self._put(at_ns // self._width_ns, share, 1)
        while len(self._slots) > POINTS_MAX:
            self._make_room()

    def points(self) -> tuple[tuple[int, float], ...]:
        """Shape: (end of slot in Unix nanoseconds, mean share), oldest first."""
        return tuple(
            ((slot + 1) * self._width_ns, total / count) for slot, (total, count) in sorted(self._slots.items())
        )

    def _put(self, slot: int, total: float, count: int) -> None:
        had_total, had_count = self._slots.get(slot, (0.0, 0))
        self._slots[slot] = (had_total + total, had_count + count)

    def _make_room(self) -> None:
        if self._width_ns >= COARSEST_NS:
            del self._slots[min(self._slots)]
            return
        fine, self._slots = self._slots, {}
        self._width_ns *= 2
        for slot, (total, count) in fine.items():
            self._put(slot // 2, total, count)
