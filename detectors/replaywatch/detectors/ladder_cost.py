"""What a ladder of captured sizes costs on the batches of a service, and what each size of it saves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

# Share of a step that one more sequence adds, and how many times slower an eager step is. Source: measured on an H200
# with a 1.1B Llama shape at batch 1, 8 and 48 (2.37, 2.65, 4.22 ms replayed; 15.2 ms eager at 48), 2026-11-29.
DEFAULT_GROWTH: Final = 1 / 60
DEFAULT_SLOWDOWN: Final = 3.6
# Source: TensorRT-LLM PR 13393, about 260 MB and 1.17 times the start-up for 12 more sizes of a large model.
DEFAULT_CAPTURE_MS: Final = 100.0
MAX_SIZES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What a step and a captured size cost. Units: `_us` microseconds, `_bytes` bytes.

    A replay of a graph of size s takes `fixed_us + per_size_us * s`, an eager step `slowdown` times that. A captured
    size costs `capture_us` once, spread over `lifetime_steps` steps, and `size_bytes` of `budget_bytes` where given.
    """

    fixed_us: float = 1000.0
    per_size_us: float = 1000.0 * DEFAULT_GROWTH
    slowdown: float = DEFAULT_SLOWDOWN
    capture_us: float = DEFAULT_CAPTURE_MS * 1000
    lifetime_steps: float = 1e7
    size_bytes: int = 0
    budget_bytes: int | None = None
    max_sizes: int = MAX_SIZES

    def replay_us(self, size: int) -> float:
        """Time of a replay of a graph of this size."""
        return self.fixed_us + self.per_size_us * size

    def eager_us(self, size: int) -> float:
        """Time of a step of this size without a graph."""
        return self.replay_us(size) * self.slowdown

    @property
    def rung_us(self) -> float:
        """What one more captured size costs a step, spread over the process's life."""
        return self.capture_us / max(1.0, self.lifetime_steps)

    @property
    def rungs(self) -> int:
        """How many sizes may be captured."""
        if self.budget_bytes is None or self.size_bytes <= 0:
            return max(1, self.max_sizes)
        return max(1, min(self.max_sizes, self.budget_bytes // self.size_bytes))

    def beside(self, kept: int) -> CostModel:
        """The same with memory for so many sizes taken."""
        left = None if self.budget_bytes is None else self.budget_bytes - kept * self.size_bytes
        return replace(self, budget_bytes=left)


@dataclass(frozen=True, slots=True)
class Ladder:
    """Captured sizes and what they cost: `step_us` a step on average, `padding_ratio` of the processed sequences,
    `eager_ratio` of the steps.
    """

    sizes: tuple[int, ...]
    step_us: float
    padding_ratio: float
    eager_ratio: float


def price(seen: Mapping[int, int], sizes: Sequence[int], model: CostModel, padding: bool = True) -> Ladder:
    """What a ladder costs on the batches seen. Shape: `seen` steps by size; `padding` False needs exact sizes."""
    ladder = sorted(set(sizes))
    steps = sum(seen.values())
    spent = real = padded = eager = 0.0
    for size, n in seen.items():
        at = bisect_left(ladder, size)
        if at == len(ladder) or (not padding and ladder[at] != size):
            spent, eager = spent + n * model.eager_us(size), eager + n
        else:
            spent += n * model.replay_us(ladder[at])
            real, padded = real + n * size, padded + n * ladder[at]
    if not steps:
        return Ladder(tuple(ladder), 0.0, 0.0, 0.0)
    return Ladder(
        tuple(ladder),
        spent / steps + len(ladder) * model.rung_us,
        1 - real / padded if padded else 0.0,
        eager / steps,
    )


def savings(seen: Mapping[int, int], ladder: Ladder, model: CostModel) -> dict[int, float]:
    """Share of the step time that each size saves, against the same ladder without it; only sizes that save some."""
    sizes, steps = ladder.sizes, sum(seen.values()) or 1
    spared_us = dict.fromkeys(sizes, -model.rung_us)
    for size, n in seen.items():
        at = bisect_left(sizes, size)
        if at < len(sizes):
            above_us = model.replay_us(sizes[at + 1]) if at + 1 < len(sizes) else model.eager_us(size)
            spared_us[sizes[at]] += n / steps * (above_us - model.replay_us(sizes[at]))
    return {size: us / (ladder.step_us + us) for size, us in spared_us.items() if us > 0}
