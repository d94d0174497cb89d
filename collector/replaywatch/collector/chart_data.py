"""What the page's script draws of the charts over time: the same slices as the SVG, with values to point at.

Shape: `x` in Unix seconds, ascending; `ys` one list for each name, None where nothing is known; a value holds until the
next `x`. `unit` is share (0..1) or us.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from replaywatch.collector.series import Point

Value = Callable[[Point], float | None]
Reach = Callable[[Sequence[Point], int], int]
_NS: Final = 1e9
# Where a gap begins, just behind the value before it.
_GAP_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Drawn:
    """One line or one area of a stack. `css` is the class whose colour it has."""

    name: str
    css: str
    value: Value


def chart_data(
    points: Sequence[Point], drawn: Sequence[Drawn], top: float, unit: str, reach: Reach, *, is_stacked: bool = False
) -> dict[str, object]:
    """The document. `reach` says until when a slice is drawn."""
    known = [p for p in points if any(d.value(p) is not None for d in drawn)]
    xs: list[float] = []
    ys: list[list[float | None]] = [[] for _ in drawn]

    def put(at_ns: float, values: Sequence[float | None]) -> None:
        xs.append(round(at_ns / _NS, 3))
        for line, value in zip(ys, values, strict=True):
            line.append(None if value is None else float(f"{value:.5g}"))

    for i, p in enumerate(known):
        values = [d.value(p) for d in drawn]
        put(p.start_ns, values)
        until = reach(known, i)
        if i + 1 == len(known) or known[i + 1].start_ns > until:
            put(until, values)
            put(until + _GAP_S * _NS, [None] * len(ys))
    return {
        "x": xs,
        "ys": ys,
        "names": [d.name for d in drawn],
        "css": [d.css for d in drawn],
        "top": top,
        "unit": unit,
        "stacked": is_stacked,
        "from": points[0].start_ns / _NS,
        "to": points[-1].end_ns / _NS,
    }
