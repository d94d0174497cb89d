"""What the collector keeps in memory of one workload: its recent past, its lifetime, a trail for sparklines.

Segments make the recent evidence cheap: a window is merged once into its segment, and a tick merges a handful of
segments rather than every window of the horizon.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import Final, TypeVar

from replaywatch.collector.trail import Trail
from replaywatch.contract.window import Dispatch, Observation, Window, Workload, merge_windows
from replaywatch.detectors.sudden_state import SuddenState, advance

LOG = logging.getLogger("replaywatch.collector")
SEGMENTS: Final = 8
HOUR_NS: Final = 3600 * 10**9
KEPT_OBSERVATIONS: Final = 64
KEPT_KEYS: Final = 128
Key = TypeVar("Key", str, int)


@dataclass(slots=True)
class WorkloadMemory:
    """One workload, as the detection thread keeps it. Times are Unix nanoseconds of the collector's clock, except those
    inside windows.

    `through_serial` is the last stored batch that was absorbed, `saved_serial` the one that the last
    checkpoint includes; `lifetime` is as of the last `settle`, windows absorbed since then wait.
    `is_fresh` says that windows came since the last judgement; `trail` follows the share of steps replayed; `hours`
    are the windows since the last checkpoint, added up by the hour in which they end, with their number; `sudden` is
    what windows taught one by one, as of the last `settle`.
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
    segments: dict[int, Window] = field(default_factory=dict)
    trail: Trail = field(default_factory=Trail)
    hours: dict[int, tuple[Window, int]] = field(default_factory=dict)
    sudden: SuddenState = field(default_factory=SuddenState)
    _waiting: list[Window] = field(default_factory=list)
    _older: tuple[tuple[int, ...], Window] | None = None

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
        for hour, group in groupby(waiting, key=lambda w: w.end_ns // HOUR_NS):
            windows = list(group)
            total = self._into_segments(windows, horizon_ns)
            self.lifetime = total if self.lifetime is None else bounded(merge_in_order(self.lifetime, total))
            here = self.hours.get(hour)
            merged = total if here is None else bounded(merge_in_order(here[0], total))
            self.hours[hour] = (merged, len(windows) + (here[1] if here is not None else 0))

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

    def _into_segments(self, windows: Sequence[Window], horizon_ns: int) -> Window:
        """Add windows, in order of their ends, to the recent past; what they add up to."""
        width_ns = max(1, horizon_ns // SEGMENTS)
        totals = []
        for slot, group in groupby(windows, key=lambda w: w.end_ns // width_ns):
            total = reduce(merge_windows, group)
            totals.append(total)
            here = self.segments.get(slot)
            self.segments[slot] = total if here is None else merge_in_order(here, total)
            if self._older is not None and slot in self._older[0]:
                self._older = None
            share = replayed_ratio(total)
            if share is not None:
                self.trail.add(total.end_ns, share)
        newest = max(self.segments)
        for old in [s for s in self.segments if s <= newest - SEGMENTS]:
            del self.segments[old]
        return reduce(merge_windows, totals)

    @property
    def recent(self) -> Window | None:
        """Everything within the horizon as one window; None when nothing is held."""
        if not self.segments:
            return None
        *older, newest = sorted(self.segments)
        if not older:
            return self.segments[newest]
        if self._older is None or self._older[0] != tuple(older):
            # The newest segment changes with every window, those before it only when a new one begins.
            self._older = tuple(older), reduce(merge_windows, (self.segments[s] for s in older))
        return merge_windows(self._older[1], self.segments[newest])


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
    dispatch = window.dispatch
    maps = (
        dispatch.steps,
        dispatch.fallbacks,
        dispatch.batch_sizes,
        dispatch.eager_batch_sizes,
        dispatch.captures,
        dispatch.updates,
        dispatch.failed_calls,
    )
    if small and all(m is None or len(m) <= KEPT_KEYS for m in maps):
        return window
    return replace(
        window,
        dispatch=_bounded_dispatch(dispatch),
        blind=window.blind[-KEPT_OBSERVATIONS:],
        observations=_most_frequent(window.observations),
    )


def _most_frequent(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    return tuple(heapq.nlargest(KEPT_OBSERVATIONS, observations, key=lambda o: o.count))


def _bounded_dispatch(dispatch: Dispatch) -> Dispatch:
    return replace(
        dispatch,
        steps=_largest(dispatch.steps),
        fallbacks=_largest(dispatch.fallbacks),
        batch_sizes=_largest(dispatch.batch_sizes),
        eager_batch_sizes=_largest(dispatch.eager_batch_sizes),
        captures=_largest(dispatch.captures),
        updates=_largest(dispatch.updates),
        failed_calls=_largest(dispatch.failed_calls),
    )


def _largest(counts: Mapping[Key, int] | None) -> Mapping[Key, int] | None:
    if counts is None or len(counts) <= KEPT_KEYS:
        return counts
    return dict(heapq.nlargest(KEPT_KEYS, counts.items(), key=lambda item: item[1]))
