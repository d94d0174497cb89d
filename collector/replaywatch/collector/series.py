"""What charts draw: windows of one workload added up over slices of time, by the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, func, literal, select, union_all
from sqlalchemy.orm import Session

from replaywatch.collector.memory import HOUR_NS
from replaywatch.collector.tables import HourRow, Sums, WindowRow

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


_SUMMED: Final = tuple(Sums.__annotations__)


def read_series(session: Session, workload_id: str, from_ns: int, to_ns: int, points: int) -> list[Point]:
    """At most `points` slices of one width between two times, those without windows left out.

    Before the first whole hour of which all windows are still there, hourly sums stand in for them.
    """
    width_ns = max(1, -(-(to_ns - from_ns) // max(1, min(points, POINTS_MAX))))
    whole_ns = _first_whole_hour_ns(session, workload_id)
    rows = union_all(
        _columns(WindowRow, literal(1), WindowRow.end_ns).where(
            WindowRow.workload_id == workload_id,
            WindowRow.end_ns >= max(from_ns, whole_ns),
            WindowRow.end_ns < to_ns,
        ),
        _columns(HourRow, HourRow.windows, HourRow.hour_ns + HOUR_NS - 1).where(
            HourRow.workload_id == workload_id,
            HourRow.hour_ns >= from_ns - HOUR_NS + 1,
            HourRow.hour_ns < min(to_ns, whole_ns),
        ),
    ).subquery()
    slot = ((rows.c.at_ns - from_ns) // width_ns).label("slot")
    query = (
        select(slot, func.sum(rows.c.windows), *(func.sum(rows.c[name]) for name in _SUMMED))
        .where(rows.c.at_ns < to_ns)
        .group_by(slot)
        .order_by(slot)
    )
    return [_point(from_ns, width_ns, tuple(row)) for row in session.execute(query)]


def _columns(table: type[WindowRow] | type[HourRow], windows: Any, at_ns: Any) -> Select[Any]:
    return select(windows.label("windows"), at_ns.label("at_ns"), *(getattr(table, name) for name in _SUMMED))


def _first_whole_hour_ns(session: Session, workload_id: str) -> int:
    """Start of the first hour of which all windows are still there; before it the sums know more."""
    mine = WindowRow.workload_id == workload_id
    kept = session.scalar(select(func.min(WindowRow.end_ns)).where(mine))
    if kept is None:
        return (1 << 63) - 1
    hour = kept // HOUR_NS * HOUR_NS
    inside = (WindowRow.end_ns >= hour) & (WindowRow.end_ns < hour + HOUR_NS)
    here = session.scalar(select(func.count()).select_from(WindowRow).where(mine, inside)) or 0
    summed = session.scalar(select(HourRow.windows).where(HourRow.workload_id == workload_id, HourRow.hour_ns == hour))
    return hour if here >= (summed or 0) else hour + HOUR_NS


def _point(from_ns: int, width_ns: int, row: Sequence[Any]) -> Point:
    start_ns = from_ns + int(row[0]) * width_ns
    return Point(start_ns, start_ns + width_ns, *row[1:])


def extent(session: Session, workload_id: str) -> tuple[int, int] | None:
    """First and last time that something is known of a workload, in nanoseconds; None without windows and sums."""
    hours = select(func.min(HourRow.hour_ns), func.max(HourRow.hour_ns)).where(HourRow.workload_id == workload_id)
    first_hour, last_hour = session.execute(hours).one()
    windows = select(func.min(WindowRow.end_ns), func.max(WindowRow.end_ns)).where(WindowRow.workload_id == workload_id)
    ends: Any = session.execute(windows).one()
    first, last = ends
    if first is None or last is None:
        return None if first_hour is None else (first_hour, last_hour + HOUR_NS - 1)
    whole_ns = _first_whole_hour_ns(session, workload_id)
    return (first_hour if first_hour is not None and first_hour < whole_ns else first), last


def _per(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _ratio(part: float | None, whole: float | None) -> float | None:
    value = _per(part, whole)
    return None if value is None else min(1.0, max(0.0, value))
