"""Windows that are unusual as a whole though no single figure is: a robust ellipse around the residuals.

The ellipse is fitted by scikit-learn (minimum covariance determinant) once residuals of some minutes are there, and
again every hour; between fits a window costs one small matrix product, and nothing but the ellipse is kept. Without
scikit-learn there is no ellipse, and the single channels still work.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from replaywatch.contract.record import record

# Channels whose residuals belong together, and how many windows a fit takes.
JOINT: Final = ("step_us", "pause_ratio", "replay_us", "gap_us", "launch_us", "unreplayed_ratio")
FIT_WINDOWS: Final = 96
REFIT_WINDOWS: Final = 720
# Windows in a row before it is told.
TOLD_WINDOWS: Final = 3
_TENTHS: Final = 250
_BETTER: Final = 30
# 99.99 % of a chi-squared distribution, by degrees of freedom; the tails of residuals are heavier than normal.
_EDGE: Final = {2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9}
_HEAVY: Final = 2.0


@dataclass(frozen=True, slots=True)
class Ellipse:
    """What residuals are usual together. Shape: `precision` is the inverse covariance, row by row."""

    names: tuple[str, ...]
    center: tuple[float, ...]
    precision: tuple[float, ...]
    edge: float

    def distance(self, residuals: Mapping[str, float]) -> float | None:
        """Squared distance of a window from the middle; None where one of the residuals is missing."""
        if any(name not in residuals for name in self.names):
            return None
        away = [_tenths(residuals[name]) - middle for name, middle in zip(self.names, self.center, strict=True)]
        n = len(away)
        return sum(away[i] * self.precision[i * n + j] * away[j] for i in range(n) for j in range(n))


@record(frozen=True, slots=True)
class JointMemory:
    """Residuals in tenths of a sigma until they suffice for a fit, the last ellipse, and windows outside it."""

    names: tuple[str, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()
    ellipse: Ellipse | None = None
    since_fit: int = 0
    outside: int = 0
    distance: float = 0.0


def advance_joint(memory: JointMemory, residuals: Mapping[str, float], is_calm: bool) -> JointMemory:
    """The memory after one more window; `is_calm` windows teach it."""
    ellipse, names = memory.ellipse, memory.names
    distance = ellipse.distance(residuals) if ellipse is not None else None
    outside = memory.outside + 1 if ellipse is not None and distance is not None and distance > ellipse.edge else 0
    since = memory.since_fit + 1
    if (ellipse is not None and since < REFIT_WINDOWS) or not is_calm:
        return JointMemory(names, memory.rows, ellipse, since, outside, distance or 0.0)
    here = tuple(name for name in JOINT if name in residuals)
    if len(here) < 2:
        return JointMemory(names, memory.rows, ellipse, since, outside, distance or 0.0)
    former = memory.rows if here == names else ()
    names = here
    rows = (*former, tuple(_tenths(residuals[name]) for name in names))
    if len(rows) < FIT_WINDOWS:
        return JointMemory(names, rows, ellipse, since, outside, distance or 0.0)
    return JointMemory(names, (), fit(names, rows) or ellipse, 0, outside, distance or 0.0)


def load_fitting() -> None:
    """Import what a fit needs, about a second of work, so that the first fit need not; nothing without scikit-learn."""
    with contextlib.suppress(ImportError):
        importlib.import_module("sklearn.covariance")


def fit(names: tuple[str, ...], rows: Sequence[Sequence[int]]) -> Ellipse | None:
    """A robust ellipse around rows of residuals in tenths of a sigma; None without scikit-learn, or without spread."""
    try:
        import numpy as np
        from sklearn.covariance import MinCovDet  # type: ignore[import-untyped]
    except ImportError:
        return None
    data = np.asarray(rows, dtype=float)
    varying = [i for i in range(len(names)) if float(data[:, i].std()) > 0.5]
    if len(varying) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = MinCovDet(random_state=0).fit(data[:, varying])
            precision = np.linalg.inv(made.covariance_ + np.eye(len(varying)))
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            return None
    usual = Ellipse(
        tuple(names[i] for i in varying),
        tuple(float(x) for x in made.location_),
        tuple(float(x) for x in precision.ravel()),
        _HEAVY * _EDGE[len(varying)],
    )
    seen = [usual.distance({n: row[i] / 10 for i, n in enumerate(names)}) or 0.0 for row in rows]
    return Ellipse(usual.names, usual.center, usual.precision, max(usual.edge, 1.5 * max(seen)))


def _tenths(residual: float) -> int:
    """Tenths of a sigma; better than usual is not unusual."""
    return max(-_BETTER, min(_TENTHS, round(10 * residual)))
