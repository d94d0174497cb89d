"""Numenta's benchmark, scored as its paper describes (Lavin and Ahmad, "Evaluating Real-time Anomaly Detection
Algorithms", 2015): windows around labelled anomalies, a sigmoid that rewards early detection, one threshold for a
profile over the whole corpus, and a scale on which 0 is a detector that never speaks and 100 a perfect one.

The first 15 % of a series, at most 750 records, are for learning and are not scored.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import exp
from pathlib import Path
from typing import Final

from replaywatch.detectors.series import SeriesDetector

PROBATION_RATIO: Final = 0.15
PROBATION_MOST: Final = 750
FAR: Final = 3.0


@dataclass(frozen=True)
class Profile:
    """What a true positive, a false positive and a missed window weigh."""

    tp: float
    fp: float
    fn: float


@dataclass(frozen=True)
class Series:
    """One series. Shape: `windows` as first and last index, in order; `seconds` since the first record."""

    name: str
    values: tuple[float, ...]
    seconds: tuple[float, ...]
    windows: tuple[tuple[int, int], ...]

    @property
    def probation(self) -> int:
        """Records that are not scored."""
        return min(int(PROBATION_RATIO * len(self.values)), int(PROBATION_RATIO * 5000), PROBATION_MOST)


@dataclass(frozen=True)
class Result:
    """The score at the best threshold; `found` of `windows`, and records outside windows that were flagged."""

    score: float
    threshold: float
    found: int
    windows: int
    false_positives: int


def load(folder: Path) -> list[Series]:
    """All series of a copy of the benchmark's data, in the order of their names."""
    labels = json.loads((folder / "labels" / "combined_windows.json").read_text())
    return [_series(folder / "data" / name, name, labels[name]) for name in sorted(labels)]


def profiles(folder: Path) -> dict[str, Profile]:
    """The scoring profiles by name."""
    told = json.loads((folder / "config" / "profiles.json").read_text())
    return {
        name: Profile(p["CostMatrix"]["tpWeight"], p["CostMatrix"]["fpWeight"], p["CostMatrix"]["fnWeight"])
        for name, p in told.items()
    }


def _series(path: Path, name: str, windows: Sequence[Sequence[str]]) -> Series:
    with path.open(newline="") as stream:
        rows = [(datetime.fromisoformat(row["timestamp"]), float(row["value"])) for row in csv.DictReader(stream)]
    times = [t for t, _ in rows]
    bounds = [(datetime.fromisoformat(a), datetime.fromisoformat(b)) for a, b in windows]
    return Series(
        name,
        tuple(v for _, v in rows),
        tuple((t - times[0]).total_seconds() for t in times),
        tuple((_first(times, a), _last(times, b)) for a, b in bounds),
    )


def _first(times: list[datetime], at: datetime) -> int:
    return next(i for i, t in enumerate(times) if t >= at)


def _last(times: list[datetime], at: datetime) -> int:
    return max(i for i, t in enumerate(times) if t <= at)


def sigmoid(position: float) -> float:
    """Weight of a detection: near 1 at a window's start (-1), 0 at its end (0), -1 far behind it."""
    return -1.0 if position > FAR else 2.0 / (1.0 + exp(5.0 * position)) - 1.0


def events(series: Series, scores: Sequence[float], profile: Profile) -> list[tuple[float, int | None, float]]:
    """What each scored record would bring if it were flagged. Shape: (score, window or None, weight)."""
    made: list[tuple[float, int | None, float]] = []
    best = sigmoid(-1.0)
    current: int | None = None
    before: tuple[int, int] | None = None
    for i in range(len(scores)):
        while current is not None and i > series.windows[current][1]:
            before, current = series.windows[current], None
        for k, (left, right) in enumerate(series.windows):
            if left <= i <= right:
                current = k
        if i < series.probation:
            continue
        if current is not None:
            left, right = series.windows[current]
            position = -(right - i + 1) / (right - left + 1)
            made.append((scores[i], current, sigmoid(position) * profile.tp / best))
        elif before is None:
            made.append((scores[i], None, -profile.fp))
        else:
            width = max(1, before[1] - before[0])
            made.append((scores[i], None, sigmoid((i - before[1]) / width) * profile.fp))
    return made


def score(corpus: Sequence[Series], scores: Mapping[str, Sequence[float]], profile: Profile) -> Result:
    """The normalised score at the one threshold that is best for the whole corpus."""
    merged: list[tuple[float, tuple[str, int] | None, float]] = []
    for series in corpus:
        for value, window, weight in events(series, scores[series.name], profile):
            merged.append((value, None if window is None else (series.name, window), weight))
    merged.sort(key=lambda e: -e[0])
    windows = sum(len(s.windows) for s in corpus)
    null, perfect = -profile.fn * windows, profile.tp * windows
    raw, gained, false_positives = null, dict[tuple[str, int], float](), 0
    best = (raw, float("inf"), 0, 0)
    for at, (value, window, weight) in enumerate(merged):
        if window is None:
            raw += weight
            false_positives += 1
        elif window not in gained:
            raw += profile.fn + weight
            gained[window] = weight
        elif weight > gained[window]:
            raw += weight - gained[window]
            gained[window] = weight
        is_last = at + 1 == len(merged) or merged[at + 1][0] < value
        if is_last and raw > best[0]:
            best = (raw, value, len(gained), false_positives)
    return Result(100 * (best[0] - null) / (perfect - null), best[1], best[2], windows, best[3])


def detect(corpus: Sequence[Series]) -> dict[str, list[float]]:
    """Scores of the general detector, record by record."""
    return {series.name: _detect_one(series) for series in corpus}


def _detect_one(series: Series) -> list[float]:
    detector = SeriesDetector()
    return [detector.add(at_s, value) for at_s, value in zip(series.seconds, series.values, strict=True)]
