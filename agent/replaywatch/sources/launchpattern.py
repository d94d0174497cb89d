"""Steps from nothing but the sequence of launches: the most regular rare kernel is where a step begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

FEWEST_STEPS: Final = 3
# Launches of a step below which a repeated launch is called a loop of kernels, not a step.
FEWEST_LAUNCHES: Final = 3
# Share of the distances between two occurrences that must be alike, and how alike.
REGULAR_SHARE: Final = 0.75
_ALIKE: Final = 0.1
_SEARCHED: Final = 300_000


def find_anchor(tokens: Sequence[int], idle_before: Sequence[int], is_replay: Sequence[bool]) -> int | None:
    """The token that begins a step, None where nothing repeats regularly.

    Shape: one token, idle time (any unit) and flag per launch, in order. Kernels of one step occur equally often at
    equal distances; of those, the one after the longest wait begins the step. A token that occurs once in several steps
    has few companions, one that occurs several times in a step is irregular at its border or has a shorter distance.
    """
    places: dict[int, list[int]] = defaultdict(list)
    for place, token in enumerate(tokens[:_SEARCHED]):
        places[token].append(place)
    length = min(len(tokens), _SEARCHED)
    regular: dict[int, float] = {}
    for token, where in places.items():
        distance = _regular_distance(where, length)
        if distance is not None:
            regular[token] = distance
    group = _step_tokens(regular, places)
    if not group:
        return None
    distance = regular[group[0]]
    if distance < FEWEST_LAUNCHES and not any(is_replay[places[t][0]] for t in group):
        return None
    return max(group, key=lambda t: (median(idle_before[p] for p in places[t]), -places[t][0]))


def _regular_distance(where: list[int], length: int) -> float | None:
    """Typical distance between occurrences that are regular and fill the sequence; None for others."""
    if len(where) < FEWEST_STEPS:
        return None
    distances = [b - a for a, b in pairwise(where)]
    typical = median(distances)
    alike = sum(abs(d - typical) <= max(1.0, _ALIKE * typical) for d in distances)
    if alike < REGULAR_SHARE * len(distances) or typical * len(where) < 0.6 * length:
        return None
    return float(typical)


def _step_tokens(regular: dict[int, float], places: dict[int, list[int]]) -> list[int]:
    """The tokens of the longest regular distance that has company, or that is the only one."""
    by_distance = sorted(regular, key=lambda t: -regular[t])
    for token in by_distance:
        limit = max(1.0, _ALIKE * regular[token])
        group = [t for t in by_distance if abs(regular[t] - regular[token]) <= limit]
        if len(group) >= 2 or regular[token] < FEWEST_LAUNCHES:
            return group
    return by_distance[:1]
