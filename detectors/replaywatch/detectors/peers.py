"""Peers (R2): replicas with the same fingerprint, and what one of them does differently.

A cohort is made from everybody's recent figures once a tick, at a cost that grows with the number of workloads only.
Peers say nothing of a fault that all of them share, nor of one that half of them have: they abstain then, and the
other votes decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import log, sqrt
from statistics import median
from typing import Final

from replaywatch.contract.record import record
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Workload
from replaywatch.detectors.figures import Figures

MIN_PEERS: Final = 5
MIN_GAP: Final = 0.10
# Scale of a figure never taken as less: histograms and clocks differ by this much between equal replicas.
FLOOR_RATIO: Final = 0.02
# Peers that differ by more among themselves are of two minds.
SPLIT_RATIO: Final = 0.25
# Fewer than these cannot show how step time grows with load.
MIN_FOR_SLOPE: Final = 9
_MAD_TO_SIGMA: Final = 1.4826
# Figures that are compared, which way is worse, and whether they are ratios in 0..1 already.
COMPARED: Final = {
    "step_us": (1, False),
    "replay_us": (1, False),
    "launch_us": (1, False),
    "unreplayed_ratio": (1, True),
    "coverage": (-1, True),
}
WORDS: Final = {
    "step_us": "step time",
    "replay_us": "device time of a replay",
    "launch_us": "host time of a graph launch",
    "unreplayed_ratio": "share of steps that are not replayed",
    "coverage": "share of kernels that come from graphs",
}


@dataclass(frozen=True, slots=True)
class Spread:
    """Middle and width of one figure: `median`, and `sigma` from the median absolute deviation."""

    n: int
    median: float
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortSummary:
    """What peers with the same fingerprint show. `n` counts them, the workload itself included.

    Shape: `spreads` by figure; `step_us` is that at the median load, and grows by `slope_us` with each unit of it.
    `lowest_load` and `highest_load` bound what was seen. `elsewhere` holds the medians of the same model on the same
    device model under other versions.
    """

    n: int
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    load: float | None = None
    slope_us: float | None = None
    lowest_load: float | None = None
    highest_load: float | None = None
    elsewhere: Mapping[str, float] = field(default_factory=dict)


@record(frozen=True, slots=True)
class Deviation:
    """How one figure lies among the peers'. `gap` is relative, or in points of a ratio; positive is worse."""

    figure: str
    value: float
    expected: float
    sigma: float
    gap: float
    z: float


def cohort_key(fingerprint: Fingerprint | None, config: EngineConfig | None, workload: Workload) -> str | None:
    """What peers have in common: all of the fingerprint but the host, the part and the role; None when unknown."""
    if fingerprint is None or fingerprint.gpu_model is None:
        return None
    return f"{_software(fingerprint)}/{_part(config, workload)}"


@lru_cache(maxsize=4096)
def _software(fingerprint: Fingerprint) -> str:
    """Digest of a fingerprint without its host; a fleet has few of them and asks for them at every tick."""
    return replace(fingerprint, host_cpu=None, python=None).id


def family_key(fingerprint: Fingerprint | None, config: EngineConfig | None, workload: Workload) -> str | None:
    """What the same service has in common under any version of its software."""
    if fingerprint is None or fingerprint.gpu_model is None:
        return None
    model = fingerprint.model_name or workload.model_name
    return None if model is None else f"{fingerprint.gpu_model}/{model}/{_part(config, workload)}"


def _part(config: EngineConfig | None, workload: Workload) -> str:
    role = (config.role, config.tensor_parallel_size) if config is not None else (None, None)
    return "/".join("" if p is None else str(p) for p in (*role, workload.engine, workload.component, workload.phase))


def summarise(figures: Iterable[Figures]) -> CohortSummary:
    """One cohort out of its members' figures; O(n log n)."""
    members = list(figures)
    loads = sorted(f.load for f in members if f.load is not None)
    load = median(loads) if loads else None
    slope_us = _slope([(f.load, f.step_us) for f in members if f.load is not None and f.step_us is not None])
    spreads = {}
    for name in COMPARED:
        values = [v for f in members if (v := _value(f, name, load, slope_us)) is not None]
        if len(values) >= MIN_PEERS:
            spreads[name] = _spread(values)
    return CohortSummary(
        n=len(members),
        spreads=spreads,
        load=load,
        slope_us=slope_us,
        lowest_load=loads[0] if loads else None,
        highest_load=loads[-1] if loads else None,
    )


def _value(figures: Figures, name: str, load: float | None, slope_us: float | None) -> float | None:
    """A figure as it would be at the cohort's median load."""
    value: float | None = getattr(figures, name)
    if name == "step_us" and value is not None and slope_us and load is not None and figures.load is not None:
        return max(0.0, value - slope_us * (figures.load - load))
    return value


def _spread(values: list[float]) -> Spread:
    middle = median(values)
    return Spread(len(values), middle, _MAD_TO_SIGMA * median(abs(v - middle) for v in values))


def _slope(points: list[tuple[float, float]]) -> float | None:
    """Slope of Tukey's resistant line through thirds: no single odd member moves it. None where loads are alike."""
    if len(points) < MIN_FOR_SLOPE:
        return None
    points.sort()
    third = len(points) // 3
    low, high = points[:third], points[-third:]
    run = median(x for x, _ in high) - median(x for x, _ in low)
    if run <= 0.1 * median(x for x, _ in points):
        return None
    rise = median(y for _, y in high) - median(y for _, y in low)
    return max(0.0, rise / run)


def deviations(summary: CohortSummary, figures: Figures) -> tuple[Deviation, ...]:
    """Where a workload lies among its peers, figure by figure; empty where they are too few or cannot be compared."""
    found = []
    for name, (worse, is_ratio) in COMPARED.items():
        spread, value = summary.spreads.get(name), getattr(figures, name)
        if spread is None or value is None or is_split(name, spread):
            continue
        if name == "step_us" and not _load_is_comparable(summary, figures):
            continue
        at_load = _value(figures, name, summary.load, summary.slope_us)
        if at_load is None or (not is_ratio and spread.median <= 0):
            continue
        sigma = max(spread.sigma, FLOOR_RATIO * (1.0 if is_ratio else spread.median))
        difference = worse * (at_load - spread.median)
        gap = difference if is_ratio else difference / spread.median
        found.append(Deviation(name, at_load, spread.median, sigma, gap, difference / sigma))
    return tuple(found)


def is_odd(deviation: Deviation, n: int) -> bool:
    """Whether a deviation is beyond what the worst of n alike members shows."""
    return deviation.gap >= MIN_GAP and deviation.z >= sqrt(2 * log(max(2, n))) + 1.5


def is_split(name: str, spread: Spread) -> bool:
    """Whether the peers are of two minds about a figure."""
    return spread.sigma > SPLIT_RATIO * (1.0 if COMPARED[name][1] else spread.median)


def _load_is_comparable(summary: CohortSummary, figures: Figures) -> bool:
    if summary.load is None or figures.load is None:
        return summary.load is None and figures.load is None
    if summary.slope_us is None:
        return abs(figures.load - summary.load) <= 0.25 * summary.load
    return (summary.lowest_load or 0.0) <= figures.load <= (summary.highest_load or 0.0)


@dataclass(frozen=True, slots=True)
class Member:
    """One workload as its peers see it."""

    cohort: str
    family: str | None
    figures: Figures


def summaries(members: Iterable[Member]) -> dict[str, CohortSummary]:
    """All cohorts by key, each with what the same service shows under other versions."""
    cohorts: dict[str, list[Figures]] = {}
    families: dict[str, str] = {}
    for member in members:
        cohorts.setdefault(member.cohort, []).append(member.figures)
        if member.family is not None:
            families[member.cohort] = member.family
    made = {key: summarise(figures) for key, figures in cohorts.items()}
    relatives: dict[str, list[str]] = {}
    for key, family in families.items():
        relatives.setdefault(family, []).append(key)
    return {key: _with_relatives(key, relatives.get(families.get(key, ""), []), made) for key in made}


def _with_relatives(key: str, relatives: list[str], made: Mapping[str, CohortSummary]) -> CohortSummary:
    others = [made[other] for other in relatives if other != key]
    return replace(made[key], elsewhere=_elsewhere(others)) if others else made[key]


def _elsewhere(others: list[CohortSummary]) -> dict[str, float]:
    """The best median of each figure among cohorts of other versions."""
    best: dict[str, float] = {}
    for name, (worse, _) in COMPARED.items():
        medians = [o.spreads[name].median for o in others if name in o.spreads]
        if medians:
            best[name] = min(medians, key=lambda m: worse * m)
    return best
