"""`Level`: what a figure usually is at one load, and how much it strays; a robust regression that learns as it goes.

Figures grow with load in steps and bends (captured sizes, caches), so one line does not fit them. Each half octave of
load keeps a level of its own; between two levels a line is drawn, and nothing is claimed far from what was seen. A
value moves its level by a bounded amount only, so that a few odd windows cannot teach it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import log2
from typing import Final

# Windows that a level learns from before it says anything: two minutes of windows of five seconds.
WARM_WINDOWS: Final = 24
MAX_LEVELS: Final = 24
BUCKETS_PER_OCTAVE: Final = 2
_MEMORY: Final = 48
_TRUSTED: Final = 6
_MOST_SIGMAS: Final = 3.0
_TO_SIGMA: Final = 1.2533  # of a mean absolute deviation, for a normal spread


@dataclass(frozen=True, slots=True)
class Level:
    """Usual value at a mean load, learnt from `n` windows; `deviation` is the mean absolute deviation."""

    bucket: int
    load: float
    value: float
    deviation: float = 0.0
    n: int = 1

    @property
    def is_warm(self) -> bool:
        """Whether enough windows were seen at this load."""
        return self.n >= WARM_WINDOWS


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a value should be: between `low` and `high`, give or take `sigma`."""

    low: float
    high: float
    sigma: float


def bucket_of(load: float | None) -> int:
    """The half octave of a load; all loads below 1, and unknown ones, share a bucket."""
    return round(BUCKETS_PER_OCTAVE * log2(load)) if load is not None and load > 1 else 0


def learn(levels: tuple[Level, ...], load: float | None, value: float) -> tuple[Level, ...]:
    """The levels after one more value. Shape: ascending by bucket, at most MAX_LEVELS."""
    bucket, at_load = bucket_of(load), load or 0.0
    at = bisect_left(levels, bucket, key=_bucket)
    if at == len(levels) or levels[at].bucket != bucket:
        grown = (*levels[:at], Level(bucket, at_load, value), *levels[at:])
        return grown if len(grown) <= MAX_LEVELS else _without_least(grown, bucket)
    level = levels[at]
    share = 1.0 / min(level.n + 1, _MEMORY)
    step = value - level.value
    if level.n >= _TRUSTED:
        most = _MOST_SIGMAS * max(_TO_SIGMA * level.deviation, 0.005 * abs(level.value), 1e-9)
        step = max(-most, min(most, step))
    moved = Level(
        bucket,
        level.load + share * (at_load - level.load),
        level.value + share * step,
        level.deviation + share * (abs(step) - level.deviation),
        level.n + 1,
    )
    return (*levels[:at], moved, *levels[at + 1 :])


def expect(levels: tuple[Level, ...], load: float | None, *, grows: bool) -> Expectation | None:
    """What the levels say of a value at a load; None before any of them is warm.

    Beyond what was seen, a value that `grows` with load may lie anywhere between its nearest level and proportion.
    """
    warm = [level for level in levels if level.is_warm]
    if not warm:
        return None
    at_load, bucket = load or 0.0, bucket_of(load)
    at = bisect_left(warm, bucket, key=_bucket)
    if at < len(warm) and warm[at].bucket == bucket:
        return _inside(warm, at, at_load)
    if 0 < at < len(warm):
        return _between(warm[at - 1], warm[at], at_load)
    edge = warm[0] if at == 0 else warm[-1]
    return _beyond(edge, at_load, grows)


def _bucket(level: Level) -> int:
    return level.bucket


def _without_least(levels: tuple[Level, ...], spared: int) -> tuple[Level, ...]:
    least = min((level for level in levels if level.bucket != spared), key=lambda level: level.n)
    return tuple(level for level in levels if level is not least)


def _inside(warm: list[Level], at: int, load: float) -> Expectation:
    """At a level, moved along the line to the neighbour on the load's side."""
    level = warm[at]
    other = at + 1 if load > level.load else at - 1
    value = level.value
    if 0 <= other < len(warm) and warm[other].load != level.load:
        slope = (warm[other].value - level.value) / (warm[other].load - level.load)
        value += slope * (load - level.load)
    return Expectation(value, value, _TO_SIGMA * level.deviation)


def _between(below: Level, above: Level, load: float) -> Expectation:
    run = above.load - below.load
    share = min(1.0, max(0.0, (load - below.load) / run)) if run else 0.5
    value = below.value + share * (above.value - below.value)
    # The bend between two levels is unknown: half of the way from the line to either level is not odd.
    bend = 0.25 * abs(above.value - below.value)
    sigma = _TO_SIGMA * max(below.deviation, above.deviation)
    return Expectation(value - bend, value + bend, sigma)


def _beyond(edge: Level, load: float, grows: bool) -> Expectation:
    sigma = _TO_SIGMA * edge.deviation
    if not grows or not edge.load or not load:
        return Expectation(edge.value, edge.value, sigma)
    scaled = edge.value * load / edge.load
    return Expectation(min(edge.value, scaled), max(edge.value, scaled), 2 * sigma)
