"""What the collector keeps in memory of one workload: its recent past, its lifetime, a trail for sparklines.

Merging is what this costs, so a window is merged into as few wholes as can be, and with others at once where that will
do: into the lifetime and the recent past as it comes, into its segment once that is over, into its hour with some
others. A segment that leaves the horizon is left out by adding up those that stay.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

from replaywatch.collector.trail import Trail
from replaywatch.contract.window import Dispatch, Observation, Window, Workload, merge_all, merge_windows
from replaywatch.detectors.sudden_state import SuddenState, advance

LOG = logging.getLogger("replaywatch.collector")
SEGMENTS: Final = 8
# Windows of an hour that wait to be added up at once.
SOME: Final = 8
HOUR_NS: Final = 3600 * 10**9
# So many windows in a row that come too late for the recent past are not late: the clock went back, and what is held
# lies in a future that was none.
TOO_MANY_LATE: Final = 60
KEPT_OBSERVATIONS: Final = 64
KEPT_KEYS: Final = 128
Key = TypeVar("Key", str, int)
# Fields of Dispatch that count by a key of which there may be any number.
_MAPS: Final = tuple(f.name for f in fields(Dispatch) if str(f.type).startswith("Mapping["))
_maps_of: Final = attrgetter(*_MAPS)


@dataclass(slots=True)
class WorkloadMemory:
    """One workload, as the detection thread keeps it. Times are Unix nanoseconds of the collector's clock, except those
    inside windows.

    `through_serial` is the last stored batch that was absorbed, `saved_serial` the one that the last
    checkpoint includes; `lifetime` is as of the last `settle`, windows absorbed since then wait.
    `is_fresh` says that windows came since the last judgement; `trail` follows the share of steps replayed; `sudden`
    is what windows taught one by one, as of the last `settle`.
    """

    id: str
    workload: Workload
    first_seen_ns: int
    last_seen_ns: int
    lifetime: Window | None = None
    through_serial: int = 0
    saved_serial: int = 0
    is_fresh: bool = False
    is_dirty: bool = False
    trail: Trail = field(default_factory=Trail)
    sudden: SuddenState = field(default_factory=SuddenState)
    _waiting: list[Window] = field(default_factory=list)
    _segments: dict[int, list[Window]] = field(default_factory=dict)
    _recent: Window | None = None
    _late: int = 0
    _hours: dict[int, tuple[list[Window], int]] = field(default_factory=dict)

    def absorb(self, window: Window, received_ns: int, serial: int) -> None:
        """Take in a window that is not part of the lifetime yet, from the batch stored as `serial`."""
        self._waiting.append(window)
        self.through_serial = max(self.through_serial, serial)
        self.last_seen_ns = max(self.last_seen_ns, received_ns)
        self.is_fresh = self.is_dirty = True

    def settle(self, horizon_ns: int) -> None:
        """Add up what waits: once for the lifetime and its hour, however many windows came since the last tick."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        waiting.sort(key=lambda w: w.end_ns)
        self._follow(waiting)
        for hour, windows in _runs(waiting, HOUR_NS):
            total = merge_all(windows)
            self.lifetime = total if self.lifetime is None else bounded(merge_in_order(self.lifetime, total))
            self._into_hour(hour, total, len(windows))
            self._into_segments(windows, horizon_ns)

    @property
    def hours(self) -> dict[int, tuple[Window, int]]:
        """The windows since the last checkpoint, added up by the hour in which they end, with their number."""
        return {hour: (bounded(_together(totals)), n) for hour, (totals, n) in self._hours.items()}

    def forget_hours(self) -> None:
        """Count hours anew; they are written down."""
        self._hours.clear()

    def _into_hour(self, hour: int, total: Window, count: int) -> None:
        totals, n = self._hours.get(hour, ([], 0))
        totals.append(total)
        if len(totals) > SOME:
            totals = [bounded(_together(totals))]
        self._hours[hour] = totals, n + count

    def _follow(self, windows: Sequence[Window]) -> None:
        """Teach the detector of sudden changes; figures beyond all bounds teach it nothing."""
        for window in windows:
            try:
                self.sudden = advance(self.sudden, window)
            except (ArithmeticError, ValueError):
                LOG.exception("a window of workload %s was not followed", self.id)

    def recall(self, window: Window, horizon_ns: int) -> None:
        """Take a window into the recent past only."""
        self._into_segments([window], horizon_ns)

    def _into_segments(self, windows: Sequence[Window], horizon_ns: int) -> None:
        """Add windows, in order of their ends, to the recent past."""
        width_ns = max(1, horizon_ns // SEGMENTS)
        for slot, some in _runs(windows, width_ns):
            total = merge_all(some)
            if self._is_too_late(slot, len(some)):
                continue
            if slot not in self._segments:
                self._begin_segment(slot, total)
            else:
                self._segments[slot].append(total)
                # What comes late lies inside what was added up already, where its gauges are not the last.
                is_last = self._recent is not None and total.end_ns >= self._recent.end_ns
                self._recent = merge_windows(self._recent, total) if self._recent and is_last else None
            share = replayed_ratio(total)
            if share is not None:
                self.trail.add(total.end_ns, share)

    def _is_too_late(self, slot: int, count: int) -> bool:
        """Whether windows lie before the horizon, unless that has been so for too long to be true."""
        if not self._segments or slot > max(self._segments) - SEGMENTS:
            self._late = 0
            return False
        self._late += count
        if self._late < TOO_MANY_LATE:
            return True
        LOG.warning(
            "the recent past of workload %s lay in the future and is begun anew: did the clock go back?", self.id
        )
        self._segments.clear()
        self._recent, self._late = None, 0
        return False

    def _begin_segment(self, slot: int, total: Window) -> None:
        """Add up the segments that are over, and drop those that the new one pushes out of the horizon."""
        for windows in self._segments.values():
            if len(windows) > 1:
                windows[:] = [_together(windows)]
        self._segments[slot] = [total]
        newest = max(self._segments)
        for old in [s for s in self._segments if s <= newest - SEGMENTS]:
            del self._segments[old]
        self._recent = None

    @property
    def recent(self) -> Window | None:
        """Everything within the horizon as one window; None when nothing is held."""
        if self._recent is None and self._segments:
            self._recent = merge_all([_together(self._segments[slot]) for slot in sorted(self._segments)])
        return self._recent


def _runs(windows: Sequence[Window], width_ns: int) -> Iterable[tuple[int, Sequence[Window]]]:
    """Windows, in order of their ends, by the stretch of a width in which they end; mostly it is one window."""
    if len(windows) == 1:
        return ((windows[0].end_ns // width_ns, windows),)
    return ((slot, list(some)) for slot, some in groupby(windows, key=lambda w: w.end_ns // width_ns))


def _together(windows: Sequence[Window]) -> Window:
    """Windows of one stretch as one, in the order of their ends."""
    return merge_all(sorted(windows, key=lambda w: w.end_ns)) if len(windows) > 1 else windows[0]


def merge_in_order(a: Window, b: Window) -> Window:
    """Two windows as one, whichever is later: a late arrival must not overwrite newer gauges."""
    return merge_windows(a, b) if a.end_ns <= b.end_ns else merge_windows(b, a)


def replayed_ratio(window: Window) -> float | None:
    """Share of steps that were replayed, fully or piecewise; of kernels where steps are not told apart; else None."""
    steps = window.dispatch.steps
    if steps:
        total = sum(steps.values())
        return (total - steps.get("eager", 0)) / total if total > 0 else None
    return window.traced.coverage if window.traced is not None else None


def bounded(window: Window) -> Window:
    """The window with its open-ended parts cut to their largest, so that a lifetime cannot grow without end."""
    small = len(window.observations) <= KEPT_OBSERVATIONS and len(window.blind) <= KEPT_OBSERVATIONS
    if small and all(m is None or len(m) <= KEPT_KEYS for m in _maps_of(window.dispatch)):
        return window
    return replace(
        window,
        dispatch=_bounded_dispatch(window.dispatch),
        blind=window.blind[-KEPT_OBSERVATIONS:],
        observations=_most_frequent(window.observations),
    )


def _most_frequent(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    return tuple(heapq.nlargest(KEPT_OBSERVATIONS, observations, key=lambda o: o.count))


def _bounded_dispatch(dispatch: Dispatch) -> Dispatch:
    cut: dict[str, Any] = dict(zip(_MAPS, map(_largest, _maps_of(dispatch)), strict=True))
    return replace(dispatch, **cut)


def _largest(counts: Mapping[Key, int] | None) -> Mapping[Key, int] | None:
    if counts is None or len(counts) <= KEPT_KEYS:
        return counts
    return dict(heapq.nlargest(KEPT_KEYS, counts.items(), key=lambda item: item[1]))
