"""Steps from nothing but the sequence of launches: the most regular rare kernel is where a step begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

FEWEST_STEPS: Final = 3
# Launches of a step below which a repeated launch is called a loop of kernels, not a step.
FEWEST_LAUNCHES: Final = 3
# Share of the distances between two occurrences that must be alike, and how alike.
REGULAR_SHARE: Final = 0.75
_ALIKE: Final = 0.1
_EXACT: Final = 0.01
# Share of the sequence that regular occurrences must fill, and at least this much of what the best of them fill.
_FILLS: Final = 0.4
_FILLS_OF_BEST: Final = 0.9
# So many times more tokens that recur exactly within a part of a distance make that part the step.
_OUTNUMBERS: Final = 3
# How much longer the wait before a token must be for it to begin the step instead of the first one seen.
_CLEARLY_LONGER: Final = 2
_CLEARLY_LONGER_NS: Final = 2_000
_SEARCHED: Final = 300_000


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a token recurs: `distance` launches between two of it, `filled` the share of the sequence that it covers."""

    distance: float
    filled: float
    exact: bool
    is_replay: bool


def find_anchor(tokens: Sequence[int], idle_before: Sequence[int], is_replay: Sequence[bool]) -> int | None:
    """The token that begins a step, None where nothing repeats regularly.

    Shape: one token, idle nanoseconds and flag per launch, in order. Kernels of one step occur equally often at
    equal distances; of those, the one after the longest wait begins the step. A token that occurs once in several steps
    has few companions, one that occurs several times in a step is irregular at its border or has a shorter distance.
    """
    places: dict[int, list[int]] = defaultdict(list)
    for place, token in enumerate(tokens[:_SEARCHED]):
        places[token].append(place)
    group = _step_tokens(_rhythms(places, min(len(tokens), _SEARCHED), is_replay))
    if not group:
        return None
    waits = {token: median(idle_before[p] for p in places[token]) for token in group}
    first = min(group, key=lambda t: places[t][0])
    longest = max(group, key=lambda t: (waits[t], -places[t][0]))
    return longest if waits[longest] > _CLEARLY_LONGER * waits[first] + _CLEARLY_LONGER_NS else first


def _rhythms(places: Mapping[int, list[int]], length: int, is_replay: Sequence[bool]) -> dict[int, Rhythm]:
    """Tokens that recur regularly and fill the sequence about as well as the best."""
    found = {t: r for t, where in places.items() if (r := _rhythm(where, length, is_replay[where[0]])) is not None}
    enough = max((r.filled for r in found.values()), default=0.0) * _FILLS_OF_BEST
    return {token: rhythm for token, rhythm in found.items() if rhythm.filled >= enough}


def _rhythm(where: list[int], length: int, is_replay: bool) -> Rhythm | None:
    if len(where) < FEWEST_STEPS:
        return None
    distances = [b - a for a, b in pairwise(where)]
    typical = float(median(distances))
    alike = sum(abs(d - typical) <= max(1.0, _ALIKE * typical) for d in distances)
    filled = (alike + 1) * typical / length
    if alike < REGULAR_SHARE * len(distances) or filled < _FILLS:
        return None
    exact = all(abs(d - typical) <= max(1.0, _EXACT * typical) for d in distances)
    return Rhythm(typical, filled, exact, is_replay)


def _step_tokens(rhythms: Mapping[int, Rhythm]) -> list[int]:
    """The tokens of the longest distance that has company and no better part; else the rarest replay; else none."""
    by_distance = sorted(rhythms, key=lambda t: -rhythms[t].distance)
    chosen: list[int] = []
    for token in by_distance:
        group = _companions(token, by_distance, rhythms)
        replays = any(rhythms[t].is_replay for t in group)
        if len(group) < 2 or (rhythms[token].distance < FEWEST_LAUNCHES and not replays):
            continue
        if not chosen:
            chosen = group
        elif _is_part(rhythms[token].distance, rhythms[chosen[0]].distance):
            exact = [t for t in group if rhythms[t].exact]
            if len(exact) >= _OUTNUMBERS * len(chosen):
                return exact
    if chosen:
        return chosen
    alone = [t for t in by_distance if rhythms[t].is_replay or rhythms[t].distance >= FEWEST_LAUNCHES]
    return sorted(alone, key=lambda t: not rhythms[t].is_replay)[:1]


def _companions(token: int, by_distance: list[int], rhythms: Mapping[int, Rhythm]) -> list[int]:
    distance = rhythms[token].distance
    return [t for t in by_distance if abs(rhythms[t].distance - distance) <= max(1.0, _ALIKE * distance)]


def _is_part(part: float, whole: float) -> bool:
    """Whether a distance goes a whole number of times, two or more, into another."""
    times = round(whole / part)
    return times >= 2 and abs(part * times - whole) <= max(1.0, _EXACT * whole)
