"""The peers' published methods, implemented plainly, on the same windows.

Each takes samples in order and says of each whether it alarms; the first MIN_HISTORY teach those that learn. Two alarms
in a row count, as two ticks do for an incident. Sources are in docs/score.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from replaywatch.contract.window import Window
from replaywatch.detectors.figures import figures_of

MIN_HISTORY = 1000
WINDOW_SECONDS = 5.0


@dataclass(frozen=True)
class Sample:
    """What a method may look at: load in sequences, step in microseconds, replays a second, share of time busy."""

    load: float
    step_us: float
    replays_per_second: float
    busy_ratio: float


def sample_of(window: Window) -> Sample:
    """A sample out of a window."""
    figures, dispatch = figures_of(window), window.dispatch
    seconds = (window.end_ns - window.start_ns) / 1e9
    replays, replay_us = dispatch.replays or 0, figures.replay_us or 0.0
    return Sample(
        figures.load or 0.0, figures.step_us or 0.0, replays / seconds, min(1.0, replays * replay_us / 1e6 / seconds)
    )


Alarms = Callable[[Sequence[Sample]], list[bool]]
# What a method learns from history; the alarms it gives then on that history and what comes after it.
Method = Callable[[Sequence[Sample]], Alarms]


def residual_chart(history: Sequence[Sample]) -> Alarms:
    """Self-history: gradient-boosted trees predict the step from the load, a control chart of window 10 watches the
    residual, with mean plus three sigma as the limit (after LatencyPrism).
    """
    from sklearn.ensemble import GradientBoostingRegressor  # type: ignore[import-untyped]

    learnt = history[:MIN_HISTORY]
    model = GradientBoostingRegressor(n_estimators=60, random_state=0)
    model.fit([[s.load] for s in learnt], [s.step_us for s in learnt])

    def charted(samples: Sequence[Sample]) -> list[float]:
        predicted = model.predict([[s.load] for s in samples])
        over = [s.step_us - float(p) for s, p in zip(samples, predicted, strict=True)]
        return [fmean(over[max(0, i - 9) : i + 1]) for i in range(len(over))]

    usual = charted(learnt)
    limit = fmean(usual) + 3 * pstdev(usual)
    return lambda samples: [i >= MIN_HISTORY and c > limit for i, c in enumerate(charted(samples))]


def token_roofline(history: Sequence[Sample]) -> Alarms:
    """A line of step time over load by RANSAC, lifted to the 99th percentile of history (after StriaTrace)."""
    from sklearn.linear_model import RANSACRegressor  # type: ignore[import-untyped]

    learnt = history[:MIN_HISTORY]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        line = RANSACRegressor(random_state=0).fit([[s.load] for s in learnt], [s.step_us for s in learnt])

    def over(samples: Sequence[Sample]) -> list[float]:
        predicted = line.predict([[s.load] for s in samples])
        return [s.step_us - float(p) for s, p in zip(samples, predicted, strict=True)]

    roof = sorted(over(learnt))[int(0.99 * len(learnt))]
    return lambda samples: [i >= MIN_HISTORY and o > roof for i, o in enumerate(over(samples))]


def launch_rate_drop(_history: Sequence[Sample]) -> Alarms:
    """Replays a second over ten seconds below half of the own peak, which was at least five (after Ingero)."""

    def alarms(samples: Sequence[Sample]) -> list[bool]:
        peak, found = 0.0, []
        for i, s in enumerate(samples):
            rate = (s.replays_per_second + samples[max(0, i - 1)].replays_per_second) / 2
            peak = max(peak, rate)
            found.append(peak >= 5.0 and rate < 0.5 * peak)
        return found

    return alarms


def low_utilisation(_history: Sequence[Sample]) -> Alarms:
    """The device is busy less than half of the time: a threshold that dashboards often have."""
    return lambda samples: [s.busy_ratio < 0.5 for s in samples]


METHODS: dict[str, Method] = {
    "residual chart on self-history (LatencyPrism)": residual_chart,
    "token roofline, P99 (StriaTrace)": token_roofline,
    "launch rate below half of own peak (Ingero)": launch_rate_drop,
    "device busy below 50 %": low_utilisation,
}


def episodes(alarms: Iterable[bool]) -> list[int]:
    """Positions at which two alarms in a row begin an episode; it ends with six calm samples."""
    found, hot, calm, is_open = [], 0, 0, False
    for i, alarm in enumerate(alarms):
        hot, calm = (hot + 1, 0) if alarm else (0, calm + 1)
        if hot == 2 and not is_open:
            found.append(i)
            is_open = True
        if calm >= 6:
            is_open = False
    return found
