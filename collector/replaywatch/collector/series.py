"""What charts draw: windows of one workload added up over slices of time, by the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from replaywatch.collector.tables import WindowRow

POINTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Point:
    """Sums over one slice of time [start_ns, end_ns); None where no window of it measured."""

    start_ns: int
    end_ns: int
    windows: int
    full_steps: float | None
    piecewise_steps: float | None
    eager_steps: float | None
    timed_steps: float | None
    timed_ns: float | None
    kernels: float | None
    graph_kernels: float | None
    busy_ns: float | None
    span_ns: float | None
    real_tokens: float | None
    padded_tokens: float | None

    @property
    def steps(self) -> float:
        """Steps dispatched."""
        return (self.full_steps or 0.0) + (self.piecewise_steps or 0.0) + (self.eager_steps or 0.0)

    @property
    def replayed_ratio(self) -> float | None:
        """Share of steps that were replayed, fully or piecewise."""
        return _ratio((self.full_steps or 0.0) + (self.piecewise_steps or 0.0), self.steps)

    @property
    def kernel_coverage(self) -> float | None:
        """Share of traced kernels that came from graphs."""
        return _ratio(self.graph_kernels, self.kernels)

    @property
    def busy_ratio(self) -> float | None:
        """Share of traced time in which the device worked."""
        return _ratio(self.busy_ns, self.span_ns)

    @property
    def step_us(self) -> float | None:
        """Mean step time in microseconds."""
        mean_ns = _per(self.timed_ns, self.timed_steps)
        return None if mean_ns is None else mean_ns / 1000

    @property
    def padding_ratio(self) -> float | None:
        """Share of processed tokens that were padding."""
        real = _ratio(self.real_tokens, self.padded_tokens)
        return None if real is None else 1.0 - real


_SUMMED: Final = (
    WindowRow.full_steps,
    WindowRow.piecewise_steps,
    WindowRow.eager_steps,
    WindowRow.timed_steps,
    WindowRow.timed_ns,
    WindowRow.kernels,
    WindowRow.graph_kernels,
    WindowRow.busy_ns,
    WindowRow.span_ns,
    WindowRow.real_tokens,
    WindowRow.padded_tokens,
)


def read_series(session: Session, workload_id: str, from_ns: int, to_ns: int, points: int) -> list[Point]:
    """At most `points` slices of one width between two times, those without windows left out."""
    width_ns = max(1, -(-(to_ns - from_ns) // max(1, min(points, POINTS_MAX))))
    slot = ((WindowRow.end_ns - from_ns) // width_ns).label("slot")
    query = (
        select(slot, func.count(), *(func.sum(column) for column in _SUMMED))
        .where(WindowRow.workload_id == workload_id, WindowRow.end_ns >= from_ns, WindowRow.end_ns < to_ns)
        .group_by(slot)
        .order_by(slot)
    )
    return [_point(from_ns, width_ns, tuple(row)) for row in session.execute(query)]


def _point(from_ns: int, width_ns: int, row: Sequence[Any]) -> Point:
    start_ns = from_ns + int(row[0]) * width_ns
    return Point(start_ns, start_ns + width_ns, *row[1:])


def extent(session: Session, workload_id: str) -> tuple[int, int] | None:
    """First and last window end of a workload, in nanoseconds; None without windows."""
    query = select(func.min(WindowRow.end_ns), func.max(WindowRow.end_ns)).where(WindowRow.workload_id == workload_id)
    first, last = session.execute(query).one()
    return None if first is None or last is None else (first, last)


def _per(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _ratio(part: float | None, whole: float | None) -> float | None:
    value = _per(part, whole)
    return None if value is None else min(1.0, max(0.0, value))
