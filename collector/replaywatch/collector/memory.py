"""What the collector keeps in memory of one workload: its recent past, its lifetime, a trail for sparklines.

Segments make the recent evidence cheap: a window is merged once into its segment, and a tick merges a handful of
segments rather than every window of the horizon.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, TypeVar

from replaywatch.collector.trail import Trail
from replaywatch.contract.window import Dispatch, Observation, Window, Workload, merge_windows

SEGMENTS: Final = 8
KEPT_OBSERVATIONS: Final = 64
KEPT_KEYS: Final = 128
Key = TypeVar("Key", str, int)


@dataclass(slots=True)
class WorkloadMemory:
    """One workload, as the detection thread keeps it. Times are Unix nanoseconds of the collector's clock, except those
    inside windows.

    `through_serial` is the last stored batch that `lifetime` includes; `is_fresh` says that windows came since the
    last judgement; `trail` follows the share of steps replayed.
    """

    id: str
    workload: Workload
    first_seen_ns: int
    last_seen_ns: int
    lifetime: Window | None = None
    through_serial: int = 0
    is_fresh: bool = False
    is_dirty: bool = False
    segments: dict[int, Window] = field(default_factory=dict)
    trail: Trail = field(default_factory=Trail)

    def absorb(self, window: Window, received_ns: int, serial: int, horizon_ns: int) -> None:
        """Take in a window that is not part of the lifetime yet, from the batch stored as `serial`."""
        self.lifetime = window if self.lifetime is None else bounded(merge_in_order(self.lifetime, window))
        self.through_serial = max(self.through_serial, serial)
        self.is_dirty = True
        self.recall(window, horizon_ns)
        self.last_seen_ns = max(self.last_seen_ns, received_ns)
        self.is_fresh = True

    def recall(self, window: Window, horizon_ns: int) -> None:
        """Take a window into the recent past only."""
        width_ns = max(1, horizon_ns // SEGMENTS)
        slot = window.end_ns // width_ns
        here = self.segments.get(slot)
        self.segments[slot] = window if here is None else merge_in_order(here, window)
        newest = max(self.segments)
        for old in [s for s in self.segments if s <= newest - SEGMENTS]:
            del self.segments[old]
        share = replayed_ratio(window)
        if share is not None:
            self.trail.add(window.end_ns, share)

    @property
    def recent(self) -> Window | None:
        """Everything within the horizon as one window; None when nothing is held."""
        if not self.segments:
            return None
        return reduce(merge_windows, (self.segments[s] for s in sorted(self.segments)))


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
