"""`Level`: what a figure usually is at one load, and how much it strays; a robust regression that learns as it goes.

Figures grow with load in steps and bends (captured sizes, caches), so one line does not fit them. Each half octave of
load keeps a level of its own; between two levels a line is drawn, and nothing is claimed far from what was seen. A
value moves its level by a bounded amount only, so that a few odd windows cannot teach it.
"""

from __future__ import annotations

from bisect import bisect_left
from math import log2
from typing import Final

from replaywatch.contract.record import record

# Windows that a level learns from before it says anything: two minutes of windows of five seconds.
WARM_WINDOWS: Final = 24
MAX_LEVELS: Final = 24
BUCKETS_PER_OCTAVE: Final = 2
_MEMORY: Final = 48
_TRUSTED: Final = 6
# Before any level is warm: windows that a level needs to be asked at all, and how coarse the answer is.
_EARLY_LEAST: Final = 2
_EARLY_SIGMAS: Final = 2.0
_EARLY_RATIO: Final = 0.08
_MOST_SIGMAS: Final = 3.0
_TO_SIGMA: Final = 1.2533  # of a mean absolute deviation, for a normal spread


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
class Expectation:
    """What a value should be: between `low` and `high`, give or take `sigma`."""

    low: float
    high: float
    sigma: float


def bucket_of(load: float | None) -> int:
    """The half octave of a load; all loads below 1, and unknown ones, share a bucket."""
    return round(BUCKETS_PER_OCTAVE * log2(load)) if load is not None and load > 1 else 0


def learn(levels: tuple[Level, ...], load: float | None, value: float, usual: float | None = None) -> tuple[Level, ...]:
    """The levels after one more value. Shape: ascending by bucket, at most MAX_LEVELS.

    `usual` is what was expected at just this load, where the value's own level is warm: a deviation is counted from
    there, since inside a half octave a step grows with its load by more than it strays.
    """
    bucket, at_load = bucket_of(load), load or 0.0
    alone = len(levels) == 1 and levels[0].bucket == bucket
    at = 0 if alone else bisect_left(levels, bucket, key=_bucket)
    if at == len(levels) or levels[at].bucket != bucket:
        grown = (*levels[:at], Level(bucket, at_load, value), *levels[at:])
        return grown if len(grown) <= MAX_LEVELS else _without_least(grown, bucket)
    level = levels[at]
    n = level.n + 1
    share = 1.0 / n if n < _MEMORY else 1.0 / _MEMORY
    along = 0.0 if usual is None else usual - level.value
    step = value - level.value - along
    away = step if step >= 0 else -step
    if n > _TRUSTED:
        spread, least = _TO_SIGMA * level.deviation, 0.005 * abs(level.value)
        most = _MOST_SIGMAS * (spread if spread > least else least) + 1e-9
        if away > most:
            step, away = (most if step > 0 else -most), most
    moved = Level(
        bucket,
        level.load + share * (at_load - level.load),
        level.value + share * (along + step),
        level.deviation + share * (away - level.deviation),
        n,
    )
    return (moved,) if alone else (*levels[:at], moved, *levels[at + 1 :])


def expect(levels: tuple[Level, ...], load: float | None, *, grows: bool) -> Expectation | None:
    """What the levels say of a value at a load; None before any of them is warm, or all together know something.

    Beyond what was seen, a value that `grows` with load may lie anywhere between its nearest level and proportion.
    """
    at_load, bucket = load or 0.0, bucket_of(load)
    at = bisect_left(levels, bucket, key=_bucket) if len(levels) > 1 else 0
    if at < len(levels) and levels[at].bucket == bucket and levels[at].n >= WARM_WINDOWS:
        return _inside(levels, at, at_load)
    above = at
    while above < len(levels) and (levels[above].n < WARM_WINDOWS or levels[above].bucket < bucket):
        above += 1
    below = min(at, len(levels)) - 1
    while below >= 0 and levels[below].n < WARM_WINDOWS:
        below -= 1
    if below >= 0 and above < len(levels):
        return _between(levels[below], levels[above], at_load)
    if below < 0 and above == len(levels):
        return _early(levels, at, bucket, at_load, grows)
    return _beyond(levels[below] if below >= 0 else levels[above], at_load, grows)


def _early(levels: tuple[Level, ...], at: int, bucket: int, load: float, grows: bool) -> Expectation | None:
    """While a swinging load has left no level warm: what those together say that saw a few windows each.

    Coarse on purpose, so that only what is far beyond all of it is odd.
    """
    if sum(level.n for level in levels) < WARM_WINDOWS:
        return None
    known = [level for level in levels if level.n >= _EARLY_LEAST]
    if not known:
        return None
    below = next((level for level in reversed(levels[:at]) if level.n >= _EARLY_LEAST), None)
    above = next((level for level in levels[at:] if level.n >= _EARLY_LEAST), None)
    if above is not None and above.bucket == bucket:
        found = Expectation(above.value, above.value, 0.0)
    elif below is not None and above is not None:
        found = Expectation(min(below.value, above.value), max(below.value, above.value), 0.0)
    else:
        found = _beyond(below or above or known[0], load, grows)
    strays = _TO_SIGMA * sum(level.n * level.deviation for level in known) / sum(level.n for level in known)
    return Expectation(found.low, found.high, max(_EARLY_SIGMAS * strays, _EARLY_RATIO * abs(found.high)))


def _bucket(level: Level) -> int:
    return level.bucket


def _without_least(levels: tuple[Level, ...], spared: int) -> tuple[Level, ...]:
    least = min((level for level in levels if level.bucket != spared), key=lambda level: level.n)
    return tuple(level for level in levels if level is not least)


def _inside(levels: tuple[Level, ...], at: int, load: float) -> Expectation:
    """At a level, moved along the line to the next warm level on the load's side."""
    level = levels[at]
    value, step = level.value, 1 if load > level.load else -1
    other = at + step
    while 0 <= other < len(levels) and levels[other].n < WARM_WINDOWS:
        other += step
    if 0 <= other < len(levels) and levels[other].load != level.load:
        value += (levels[other].value - level.value) / (levels[other].load - level.load) * (load - level.load)
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
