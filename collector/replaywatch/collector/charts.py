"""Charts as inline SVG. Shapes stretch with the page; all text is HTML beside them, so that it stays readable.

Only numbers and constant class names go into the markup; colours are the style sheet's. Those over time carry their
data too, from which the page's script draws them anew with values to point at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from markupsafe import Markup

from replaywatch.collector.chart_data import Drawn, Value, chart_data
from replaywatch.collector.series import Point
from replaywatch.collector.wording import clock_text, duration_us, percent
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.verdict import Estimate

WIDTH: Final = 600
HEIGHT: Final = 150
BRIDGED_NS: Final = 20 * 10**9
MODES: Final = ("full", "piecewise", "eager")
LABELS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot with the texts around it. Shape: `y_labels` from top to bottom, `x_labels` from left to right."""

    plot: Markup
    y_labels: tuple[str, ...]
    x_labels: tuple[str, ...]
    told: str
    data: dict[str, object] | None = None


def sparkline(trail: Sequence[tuple[int, float]]) -> Markup:
    """The share of steps replayed over the last windows, from 0 at the bottom to 1 at the top."""
    if not trail:
        return Markup("")
    first, last = trail[0][0], trail[-1][0]
    width_ns = max(1, last - first)
    shape = [(2 + 116 * (at - first) / width_ns, 3 + 22 * (1 - _clamped(v))) for at, v in sorted(trail)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape)
    area = f"{shape[0][0]:.1f},25 {line} {shape[-1][0]:.1f},25"
    return Markup(
        '<svg class="spark" viewBox="0 0 120 28" width="120" height="28" aria-hidden="true">'
        '<line class="rule" x1="0" y1="25.5" x2="120" y2="25.5"/>'
        f'<polygon class="area" points="{area}"/><polyline class="trace" points="{line}"/>'
        f'<circle class="tip" cx="{shape[-1][0]:.1f}" cy="{shape[-1][1]:.1f}" r="2"/></svg>'
    )


def mode_bar(steps: Mapping[str, int] | None) -> Markup:
    """Steps by mode as one bar; eager is hatched as well as coloured."""
    total = sum(max(0, steps.get(m, 0)) for m in MODES) if steps else 0
    if not steps or total <= 0:
        return Markup("")
    parts, left = [], 0.0
    for mode in MODES:
        wide = 120 * max(0, steps.get(mode, 0)) / total
        if wide > 0:
            parts.append(f'<rect class="{mode}" x="{left:.2f}" y="0" width="{max(wide, 1):.2f}" height="10"/>')
            parts += _hatched(mode, left, 0, wide, 10)
        left += wide
    return Markup(
        '<svg class="modes" viewBox="0 0 120 10" preserveAspectRatio="none" width="120" height="10" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


def interval_bar(estimate: Estimate) -> Markup:
    """The recoverable share on a scale of 0 to 1: the interval as a band, the estimate as a mark."""
    low, mid, high = (120 * _clamped(v) for v in (estimate.low, estimate.ratio, estimate.high))
    return Markup(
        '<svg class="interval" viewBox="0 0 120 10" width="120" height="10" aria-hidden="true">'
        '<rect class="track" x="0" y="3" width="120" height="4" rx="2"/>'
        f'<rect class="band" x="{low:.1f}" y="2" width="{max(1.5, high - low):.1f}" height="6" rx="2"/>'
        f'<rect class="mid" x="{max(0.0, mid - 1):.1f}" y="0" width="2" height="10"/></svg>'
    )


def share_chart(points: Sequence[Point], value: Value, css: str, told: str) -> Chart:
    """A share of 0 to 1 over time."""
    return _line_chart(points, Drawn(told, css, value), 1.0, percent, "share")


def step_time_chart(points: Sequence[Point]) -> Chart:
    """Mean step time over time."""
    greatest = max((p.step_us for p in points if p.step_us is not None), default=1.0)
    drawn = Drawn("step time", "step", lambda p: p.step_us)
    return _line_chart(points, drawn, _nice(greatest * 1.1), duration_us, "us")


def mode_chart(points: Sequence[Point]) -> Chart:
    """Shares of steps by mode over time, stacked."""
    start, end = _bounds(points)
    parts = []
    for i, p in enumerate(points):
        if p.steps <= 0:
            continue
        x0, x1 = _x(p.start_ns, start, end), _x(_reach(points, i), start, end)
        top = float(HEIGHT)
        for mode, steps in zip(MODES, (p.full_steps, p.piecewise_steps, p.eager_steps), strict=True):
            tall = HEIGHT * max(0.0, steps or 0.0) / p.steps
            top -= tall
            if tall > 0:
                parts.append(
                    f'<rect class="{mode}" x="{x0:.1f}" y="{top:.1f}" width="{x1 - x0:.1f}" height="{tall:.1f}"/>'
                )
                parts += _hatched(mode, x0, top, x1 - x0, tall)
    drawn = [Drawn(mode, mode, _share_of(mode)) for mode in MODES]
    data = chart_data(points, drawn, 1.0, "share", _reach, is_stacked=True) if points else None
    labels = ("100 %", "50 %", "0")
    return Chart(_plot("".join(parts), "crispEdges"), labels, _time_labels(start, end), "steps by mode", data)


def ladder_chart(
    sizes: Mapping[int, int] | None, eager_sizes: Mapping[int, int] | None, config: EngineConfig | None
) -> Chart | None:
    """Steps by batch size, the part that was not fully replayed marked, against the ceiling; None without sizes."""
    counts = {k: v for k, v in (sizes or {}).items() if v > 0}
    if not counts:
        return None
    order = sorted(counts)
    greatest = max(counts.values())
    wide = WIDTH / len(order)
    parts = []
    for i, size in enumerate(order):
        eager = min(counts[size], (eager_sizes or {}).get(size, 0))
        left, tall, low = i * wide + wide * 0.1, 140 * counts[size] / greatest, 140 * eager / greatest
        parts.append(_bar("full", left, HEIGHT - tall, wide * 0.8, tall - low))
        parts.append(_bar("eager", left, HEIGHT - low, wide * 0.8, low))
        parts += _hatched("eager", left, HEIGHT - low, wide * 0.8, low)
    ceiling = config.ceiling if config is not None else None
    if ceiling is not None:
        x = wide * sum(1 for size in order if size <= ceiling)
        parts.append(f'<rect class="beyond" x="{x:.1f}" y="0" width="{max(0.0, WIDTH - x):.1f}" height="{HEIGHT}"/>')
        parts.append(f'<line class="ceiling" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{HEIGHT}"/>')
    every = ceil(len(order) / LABELS_MAX)
    labels = tuple(str(size) if i % every == 0 else "" for i, size in enumerate(order))
    total = sum(counts.values())
    return Chart(_plot("".join(parts)), (percent(greatest / total), "", "0"), labels, "steps by batch size")


def _share_of(mode: str) -> Value:
    def share(p: Point) -> float | None:
        steps = {"full": p.full_steps, "piecewise": p.piecewise_steps, "eager": p.eager_steps}[mode]
        return max(0.0, steps or 0.0) / p.steps if p.steps > 0 else None

    return share


def _line_chart(
    points: Sequence[Point], drawn: Drawn, top: float, wording: Callable[[float | None], str], unit: str
) -> Chart:
    start, end = _bounds(points)
    measured = [(p, v) for p in points if (v := drawn.value(p)) is not None]
    kept = [p for p, _ in measured]
    lines: list[list[tuple[float, float]]] = []
    reached = -1
    for i, (p, v) in enumerate(measured):
        y = HEIGHT * (1 - _clamped(v / top))
        x0, x1 = _x(p.start_ns, start, end), _x(_reach(kept, i), start, end)
        if not lines or p.start_ns > reached:
            lines.append([])
        lines[-1] += [(x0, y), (x1, y)]
        reached = _reach(kept, i)
    parts = [_line(drawn.css, line) for line in lines]
    labels = (wording(top), wording(top / 2), "0")
    data = chart_data(points, [drawn], top, unit, _reach) if points else None
    return Chart(_plot("".join(parts)), labels, _time_labels(start, end), drawn.name, data)


def _line(css: str, line: Iterable[tuple[float, float]]) -> str:
    points = [(x, min(HEIGHT - 1.0, max(1.0, y))) for x, y in line]
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{HEIGHT} {text} {points[-1][0]:.1f},{HEIGHT}"
    return f'<polygon class="area {css}" points="{area}"/><polyline class="trace {css}" points="{text}"/>'


def _plot(inside: str, rendering: str = "auto") -> Markup:
    rules = "".join(
        f'<line class="rule" x1="0" y1="{y}" x2="{WIDTH}" y2="{y}"/>' for y in (0.5, HEIGHT / 2, HEIGHT - 0.5)
    )
    return Markup(
        f'<svg class="plot" shape-rendering="{rendering}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
        f'aria-hidden="true">{rules}{inside}</svg>'
    )


def _bar(css: str, left: float, top: float, wide: float, tall: float) -> str:
    return f'<rect class="{css}" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{max(0.0, tall):.1f}"/>'


def _hatched(mode: str, left: float, top: float, wide: float, tall: float) -> list[str]:
    if mode != "eager" or wide <= 0 or tall <= 0:
        return []
    return [f'<rect class="hatch" x="{left:.2f}" y="{top:.1f}" width="{wide:.2f}" height="{tall:.1f}"/>']


def _bounds(points: Sequence[Point]) -> tuple[int, int]:
    return (points[0].start_ns, points[-1].end_ns) if points else (0, 1)


def _reach(points: Sequence[Point], i: int) -> int:
    """End of a slice, drawn on to the next one over a short gap."""
    here = points[i]
    if i + 1 == len(points):
        return here.end_ns
    bridged = max(BRIDGED_NS, 2 * (here.end_ns - here.start_ns))
    after = points[i + 1].start_ns
    return after if after - here.end_ns <= bridged else here.end_ns


def _x(at_ns: int, start: int, end: int) -> float:
    return WIDTH * (at_ns - start) / max(1, end - start)


def _time_labels(start: int, end: int) -> tuple[str, ...]:
    with_date = end - start > 86400 * 10**9
    return tuple(clock_text(t, with_date) for t in (start, (start + end) // 2, end))


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, value))


def _nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    base = 10.0 ** floor(log10(value))
    return next((m * base for m in (1, 1.5, 2, 3, 4, 5, 6, 8) if m * base >= value), 10 * base)
