"""The ladder advisor: which sizes to capture for the batches that a service really runs.

By dynamic programming: a batch is padded to the next captured size, or runs eager past the largest; each captured size
costs time at start and memory for as long as the process lives. Every rung of a best ladder is a size that was seen (or
must be kept), since any other could be lowered to the largest seen size below it.

Bad at: batches below the largest seen that will come but did not; above it the present sizes stay, as far as admission
allows (`keep_up_to`). Steps whose time does not grow with the size (padding is free there) make the ladder short, which
is right.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from replaywatch.detectors.ladder_cost import CostModel, Ladder, price, savings

MAX_SEEN: Final = 256


@dataclass(frozen=True, slots=True)
class Advice:
    """A better ladder beside the present one; `saved_ratio` is the share of the step time that it saves.

    `saved_by_size` is what each advised size saves of the step time that would be spent without it.
    """

    now: Ladder
    then: Ladder
    saved_by_size: Mapping[int, float] = field(default_factory=dict)

    @property
    def saved_ratio(self) -> float:
        """Share of the mean step time that the advised ladder saves, at least 0."""
        return max(0.0, 1 - self.then.step_us / self.now.step_us) if self.now.step_us else 0.0


def best_ladder(seen: Mapping[int, int], model: CostModel, keep_top: int | None = None) -> Ladder:
    """The ladder of least cost, at most `model.rungs` sizes; it reaches `keep_top`, whether that was seen or not.

    Takes O(n^2) steps for n sizes, and k times that where only k rungs are allowed.
    """
    weights = _weights(seen)
    if keep_top:
        weights.setdefault(keep_top, 0)
    sizes = sorted(weights)
    total = sum(weights.values())
    if not sizes or not total:
        return price(seen, [keep_top] if keep_top else [], model)
    chosen = _choose(sizes, [weights[s] for s in sizes], total * model.rung_us, model, keep_top or 0)
    return price(seen, chosen, model)


def _choose(sizes: list[int], counts: list[int], rung_us: float, model: CostModel, reach: int) -> list[int]:
    """Rungs of least cost; the last one is at least `reach`."""
    n = len(sizes)
    below = [0]
    for count in counts:
        below.append(below[-1] + count)
    eager_above = [0.0] * (n + 1)
    for j in range(n - 1, -1, -1):
        eager_above[j] = eager_above[j + 1] + counts[j] * model.eager_us(sizes[j])
    if model.rungs >= n:
        return _choose_freely(sizes, below, eager_above, rung_us, model, reach)
    return _choose_few(sizes, below, eager_above, rung_us, model, reach)


def _choose_freely(
    sizes: list[int], below: list[int], eager_above: list[float], rung_us: float, model: CostModel, reach: int
) -> list[int]:
    """Dynamic programming over the last rung, where any number of rungs is allowed: O(n^2)."""
    n = len(sizes)
    costs, origin = [0.0] * (n + 1), [-1] * (n + 1)  # costs[j]: sizes before j are covered, j - 1 is a rung
    for j in range(1, n + 1):
        replay = model.replay_us(sizes[j - 1])
        costs[j], origin[j] = min((costs[i] + (below[j] - below[i]) * replay + rung_us, i) for i in range(j))
    ends = range(bisect_left(sizes, reach) + 1 if reach else 0, n + 1)
    at = min(ends, key=lambda j: costs[j] + eager_above[j])
    chosen = []
    while at > 0:
        chosen.append(sizes[at - 1])
        at = origin[at]
    return chosen[::-1]


def _choose_few(
    sizes: list[int], below: list[int], eager_above: list[float], rung_us: float, model: CostModel, reach: int
) -> list[int]:
    """Dynamic programming over the last rung and the number of rungs: O(n^2 k)."""
    n = len(sizes)
    best = float("inf") if reach else eager_above[0]
    end: tuple[int, int] | None = None
    previous = [below[j + 1] * model.replay_us(sizes[j]) + rung_us for j in range(n)]
    came: list[list[int]] = [[-1] * n]
    for k in range(min(model.rungs, n)):
        if k:
            previous, origin = _add_rung(sizes, below, previous, rung_us, model)
            came.append(origin)
        for j in range(bisect_left(sizes, reach), n):
            cost = previous[j] + eager_above[j + 1]
            if cost < best:
                best, end = cost, (k, j)
    return _walk(came, end, sizes)


def _add_rung(
    sizes: list[int], below: list[int], previous: list[float], rung_us: float, model: CostModel
) -> tuple[list[float], list[int]]:
    """Cost with one rung more, ending at each size, and the rung before it."""
    n = len(sizes)
    costs, origin = [float("inf")] * n, [-1] * n
    for j in range(1, n):
        replay = model.replay_us(sizes[j])
        for i in range(j):
            cost = previous[i] + (below[j + 1] - below[i + 1]) * replay + rung_us
            if cost < costs[j]:
                costs[j], origin[j] = cost, i
    return costs, origin


def _walk(came: list[list[int]], end: tuple[int, int] | None, sizes: list[int]) -> list[int]:
    chosen: list[int] = []
    if end is None:
        return chosen
    k, j = end
    while j >= 0:
        chosen.append(sizes[j])
        j, k = came[k][j], k - 1
    return chosen[::-1]


def _weights(seen: Mapping[int, int]) -> dict[int, int]:
    """Sizes with their steps; past MAX_SEEN sizes, rounded up to a coarser grid, which never under-covers."""
    weights = {size: n for size, n in seen.items() if size > 0 and n > 0}
    grid = 1
    while len(weights) > MAX_SEEN:
        grid *= 2
        coarse: dict[int, int] = {}
        for size, n in weights.items():
            rounded = -(-size // grid) * grid
            coarse[rounded] = coarse.get(rounded, 0) + n
        weights = coarse
    return weights


def advise(
    seen: Mapping[int, int],
    current: Sequence[int],
    model: CostModel,
    *,
    padding: bool = True,
    keep_top: int | None = None,
    keep_up_to: float = math.inf,
) -> Advice:
    """The best ladder beside the present one; never worse under the model, and never covering less.

    Shape: `seen` steps by size and `current` captured sizes, in one unit; the present sizes above all that were seen
    stay, up to the first that holds `keep_up_to`, for batches that are not in `seen` yet or are counted elsewhere.
    """
    top = max([*current, keep_top or 0], default=0) or None
    largest = max(seen, default=0)
    present = sorted(current)
    served = present[: bisect_left(present, keep_up_to) + 1]
    kept = sorted({*(size for size in served if size > largest), *([top] if top else [])})
    now = price(seen, current, model, padding)
    best = best_ladder(seen, model.beside(len(kept[1:])), kept[0] if kept else None)
    then = price(seen, [*best.sizes, *kept], model)
    if then.step_us >= now.step_us:
        return Advice(now, now)
    return Advice(now, then, savings(seen, then, model))
