"""Everything that the score is made from, run once."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

from score import (
    baselines,
    case_labels,
    composed,
    composed_live,
    corpus,
    engines,
    files,
    fleets,
    live_faults,
    live_recorded,
    nab,
)
from score.corpus import Recorded
from score.live_faults import LENGTH_S
from score.situation import Situation

SEEDS = 3
DAYS = 2
OURS = "Replaywatch"
NAB_FOLDER = Path(__file__).parents[3] / "shared" / "data" / "nab"
_REPLAYED = ("decoder-replay", "replay-copies", "replay-padding", "fragments", "piecewise")


@dataclass
class Measured:
    """Results. Shape: `seconds` by method and kind of fault, None where a run was not found; `daily` false incidents
    or alarm episodes by method, one a day; `at_start` by method: faults found of all, controls alarmed of all; `live`
    sudden faults recorded on a GPU by name, with the seconds until they were found.
    """

    situations: list[Situation]
    noise: float
    seconds: dict[tuple[str, str], list[float | None]] = field(default_factory=dict)
    daily: dict[str, list[int]] = field(default_factory=dict)
    daily_by_detector: dict[str, int] = field(default_factory=dict)
    at_start: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    nab: dict[str, nab.Result] | None = None
    live: list[tuple[str, float | None]] = field(default_factory=list)


def measure() -> Measured:
    """Run everything; a few minutes."""
    recorded = {r.name: r for r in corpus.recordings()}
    found = [corpus.situation_of(r) for r in recorded.values()]
    found += [corpus.timed_situation_of(r) for r in recorded.values()]
    found += [*fleets.situations(fleets.forms(recorded)), *case_labels.situations(), *engines.situations()]
    found += [*composed.situations(recorded), *composed_live.situations(), *files.situations()]
    live = list(live_recorded.followed())
    found += [one.situation for one in live]
    result = Measured(found, noise=measured_noise(recorded))
    result.live = [(one.situation.name, one.seconds) for one in live if one.is_sudden]
    _sudden(result)
    _days(result)
    _at_start(result, recorded)
    if NAB_FOLDER.exists():
        series = nab.load(NAB_FOLDER)
        scores = nab.detect(series)
        result.nab = {name: nab.score(series, scores, p) for name, p in nab.profiles(NAB_FOLDER).items()}
    return result


def measured_noise(recorded: dict[str, Recorded]) -> float:
    """Relative spread of a replayed step between blocks of a sixth of a second: root mean square over recordings."""
    spreads = [r.spread for r in recorded.values() if str(r.line["family"]) in _REPLAYED]
    return max(0.01, sqrt(sum(s * s for s in spreads) / len(spreads))) if spreads else 0.02


def _sudden(result: Measured) -> None:
    seconds: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    learnt = None
    for run in live_faults.runs(SEEDS, result.noise):
        if learnt is None or learnt[0] != (run.load, run.seed):
            samples = [baselines.sample_of(w) for w in run.calm]
            taught = {name: method(samples) for name, method in baselines.METHODS.items()}
            learnt = ((run.load, run.seed), live_faults.learn_from(run.calm), samples, taught)
        _, state, calm, methods = learnt
        seconds[OURS, run.kind].append(live_faults.seconds_to_find(run, state))
        both = [*calm, *(baselines.sample_of(w) for w in run.faulty)]
        for name, alarms in methods.items():
            after = [i - len(calm) + 1 for i in baselines.episodes(alarms(both)) if i >= len(calm)]
            seconds[name, run.kind].append(after[0] * LENGTH_S if after else None)
    result.seconds = dict(seconds)


def _days(result: Measured) -> None:
    daily: dict[str, list[int]] = defaultdict(list)
    for seed in range(101, 101 + DAYS):
        windows, opened = live_faults.healthy_day(seed, result.noise)
        daily[OURS].append(len(opened))
        for _, detector, _ in opened:
            result.daily_by_detector[detector] = result.daily_by_detector.get(detector, 0) + 1
        samples = [baselines.sample_of(w) for w in windows]
        for name, method in baselines.METHODS.items():
            daily[name].append(len(baselines.episodes(method(samples)(samples))))
    result.daily = dict(daily)


def _at_start(result: Measured, recorded: dict[str, Recorded]) -> None:
    """Each recording as a service that has been so since its start: what history teaches, and what a look shows."""
    judged = [s for s in result.situations if s.source == "corpus"]
    faults, controls = [s for s in judged if s.is_fault], [s for s in judged if not s.is_fault]
    sure = [s for s in faults if (s.rho or 0.0) >= 0.15]
    result.at_start[OURS] = (
        sum(s.is_found for s in sure), len(sure), sum(bool(s.false_alarms) for s in controls), len(controls),
    )  # fmt: skip
    for name, method in baselines.METHODS.items():
        alarmed = {s.name: _alarms_at_start(method, recorded[s.name]) for s in judged}
        result.at_start[name] = (
            sum(alarmed[s.name] for s in sure), len(sure), sum(alarmed[s.name] for s in controls), len(controls),
        )  # fmt: skip


def _alarms_at_start(method: baselines.Method, recorded: Recorded) -> bool:
    samples = _since_start(recorded)
    return bool(baselines.episodes(method(samples)(samples)))


def _since_start(recorded: Recorded) -> list[baselines.Sample]:
    """An hour and a half of the recorded step at its recorded spread, and the share of time that its trace is busy."""
    rng = random.Random(recorded.name)
    work = recorded.window.traced
    busy = (work.busy_ratio or 0.0) if work is not None else 0.0
    replays = work.graph_launches / work.steps if work is not None and work.steps else 0.0
    load = float(recorded.line.get("batch") or 1)
    steps = [recorded.step_us * rng.lognormvariate(0, recorded.spread) for _ in range(baselines.MIN_HISTORY + 80)]
    return [baselines.Sample(load, us, replays * 1e6 / us, busy) for us in steps]
