"""A/B truth: the wall time of a step in several forms, in alternating blocks, in one process, without any profiler."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Step = Callable[[], None]


@dataclass(frozen=True)
class BlockPlan:
    """How long and how often. `alternations` blocks of each form, each of about `block_s` seconds."""

    alternations: int = 5
    block_s: float = 0.16
    most_calls: int = 20_000


@dataclass(frozen=True)
class FormTimes:
    """Step times of one form: one number per block, in microseconds per step."""

    block_us: tuple[float, ...]
    calls_per_block: int

    @property
    def median_us(self) -> float:
        """The time of a step that the truth uses."""
        return statistics.median(self.block_us)

    def spread_us(self) -> tuple[float, float]:
        """10th and 90th percentile of the blocks."""
        return percentile(self.block_us, 0.10), percentile(self.block_us, 0.90)


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between ranks; `share` in 0..1."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def block_us(step: Step, sync: Step, calls: int) -> float:
    """Wall microseconds per call over one block with a synchronisation at both ends."""
    sync()
    begin_ns = time.perf_counter_ns()
    for _ in range(calls):
        step()
    sync()
    return (time.perf_counter_ns() - begin_ns) / calls / 1e3


def calls_for(step: Step, sync: Step, plan: BlockPlan, period_calls: int) -> int:
    """How many calls make a block of the planned length: a multiple of the period, at least one period."""
    block_us(step, sync, period_calls)
    trial_us = block_us(step, sync, period_calls)
    if trial_us < 20_000:
        trial_us = block_us(step, sync, 4 * period_calls)
    periods = round(plan.block_s * 1e6 / max(trial_us, 0.1) / period_calls)
    return max(1, min(periods, plan.most_calls // period_calls)) * period_calls


@dataclass(frozen=True)
class Round:
    """One alternation: a block of every form between two gauges of the host, in microseconds."""

    gauges_us: tuple[float, float]
    block_us: Mapping[str, float]


class Alternation:
    """Times forms in alternating blocks (E G E G ...). Names that share a callable share its times."""

    def __init__(
        self, forms: Mapping[str, Step], sync: Step, plan: BlockPlan, period_calls: int = 1, steps_per_call: int = 1
    ) -> None:
        self.forms, self.sync, self.steps_per_call = forms, sync, steps_per_call
        distinct: dict[int, Step] = {id(step): step for step in forms.values()}
        self.calls = {key: calls_for(step, sync, plan, period_calls) for key, step in distinct.items()}
        self.distinct = distinct
        gc.collect()

    def blocks(self) -> dict[str, float]:
        """One block of every form, microseconds a step."""
        times = {
            key: block_us(step, self.sync, self.calls[key]) / self.steps_per_call for key, step in self.distinct.items()
        }
        return {name: times[id(step)] for name, step in self.forms.items()}

    def round(self, gauge: Callable[[], float]) -> Round:
        """The same between two gauges."""
        before = gauge()
        blocks = self.blocks()
        return Round((before, gauge()), blocks)

    def times(self, blocks: Sequence[Mapping[str, float]]) -> dict[str, FormTimes]:
        """Some blocks as times by form."""
        return {
            name: FormTimes(tuple(b[name] for b in blocks), self.calls[id(step)]) for name, step in self.forms.items()
        }


def time_forms(
    forms: Mapping[str, Step], sync: Step, plan: BlockPlan, period_calls: int = 1, steps_per_call: int = 1
) -> dict[str, FormTimes]:
    """Time each form in alternation, as often as the plan says."""
    alternation = Alternation(forms, sync, plan, period_calls, steps_per_call)
    return alternation.times([alternation.blocks() for _ in range(plan.alternations)])


def time_step_us(step: Step, sync: Step, seconds: float = 0.15) -> float:
    """A quick median step time in microseconds, for choosing sizes, not for the truth."""
    plan = BlockPlan(alternations=3, block_s=seconds / 3)
    return time_forms({"step": step}, sync, plan)["step"].median_us


def paired_rho(observed: FormTimes, graph: FormTimes) -> tuple[float, ...]:
    """The recoverable share of each neighbouring pair of blocks."""
    return tuple(1.0 - g / o for o, g in zip(observed.block_us, graph.block_us, strict=True))
