"""One self-contained HTML page: verdicts, the timeline of a typical step, and the picture of its gaps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from jinja2 import Environment, PackageLoader, select_autoescape

from replaywatch.analyze.result import Report, Result
from replaywatch.analyze.schema import step_us
from replaywatch.analyze.terminal import cost_text, evidence_text, time_text
from replaywatch.contract.histogram import Histogram, bucket_upper
from replaywatch.sources.recording import StepPicture

WIDTH: Final = 1000.0
LANE_HEIGHT: Final = 22
MIN_SPAN_WIDTH: Final = 0.6


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A span on the drawing; x and width in the drawing's units."""

    x: float
    y: int
    width: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the timeline."""

    name: str
    y: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The drawing of a step."""

    lanes: tuple[Lane, ...]
    rectangles: tuple[Rectangle, ...]
    height: int
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the gap picture: share of the idle time in gaps of a length."""

    x: float
    height: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class GapPicture:
    """Idle time by gap length, on a log axis."""

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]


def render(report: Report) -> str:
    """The page."""
    template = _environment().get_template("report.html")
    return template.render(report=report, drawings=[_drawing(r) for r in report.results])


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("replaywatch.analyze", "templates"),
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["time"] = time_text
    environment.filters["cost"] = cost_text
    environment.filters["evidence"] = evidence_text
    environment.globals["step_us"] = step_us
    return environment


def _drawing(result: Result) -> tuple[Timeline | None, GapPicture | None]:
    timeline = draw_timeline(result.picture) if result.picture and result.picture.spans else None
    gaps = result.window.timing.launch_gap or result.window.timing.replay_gap
    return timeline, draw_gaps(gaps) if gaps and gaps.count else None


def draw_timeline(picture: StepPicture) -> Timeline:
    """Lanes of a step; spans thinner than a hair are joined with their neighbour of the same kind."""
    names = list(dict.fromkeys(s.lane for s in picture.spans))
    lanes = tuple(Lane(name, 20 + i * (LANE_HEIGHT + 6)) for i, name in enumerate(names))
    scale = WIDTH / max(1, picture.duration_ns)
    rectangles: list[Rectangle] = []
    for lane in lanes:
        rectangles.extend(_lane_rectangles(picture, lane, scale))
    ticks = tuple((WIDTH * i / 5, time_text(picture.duration_ns * i / 5 / 1000)) for i in range(6))
    return Timeline(lanes, tuple(rectangles), 20 + len(lanes) * (LANE_HEIGHT + 6), ticks)


def _lane_rectangles(picture: StepPicture, lane: Lane, scale: float) -> list[Rectangle]:
    drawn: list[Rectangle] = []
    for span in sorted((s for s in picture.spans if s.lane == lane.name), key=lambda s: s.start_ns):
        kind = "graph" if span.from_graph else ("host" if lane.name.startswith("host") else "eager")
        x, width = span.start_ns * scale, max(MIN_SPAN_WIDTH, span.duration_ns * scale)
        last = drawn[-1] if drawn else None
        if last is not None and last.kind == kind and x + width <= last.x + last.width:
            continue
        title = f"{span.name[:120]} ({time_text(span.duration_ns / 1000)})"
        drawn.append(Rectangle(round(x, 2), lane.y, round(width, 2), kind, title))
    return drawn


def draw_gaps(gaps: Histogram) -> GapPicture:
    """Idle time by gap length: what matters is the time in the gaps, not their number."""
    low, high = min(gaps.buckets, default=0), max(gaps.buckets, default=0) + 1
    weights = {i: n * bucket_upper(i) for i, n in gaps.buckets.items()}
    top = max(weights.values(), default=1.0)
    width = WIDTH / max(1, high - low)
    total = sum(weights.values()) or 1.0
    bars = tuple(
        Bar(
            round((i - low) * width, 2),
            round(160 * weight / top, 2),
            round(max(1.0, width * 0.9), 2),
            f"{gaps.buckets[i]} gaps up to {time_text(bucket_upper(i) / 1000)}: {weight / total:.0%} of the idle time",
        )
        for i, weight in sorted(weights.items())
    )
    marks = tuple(((i - low) * width, time_text(bucket_upper(i) / 1000)) for i in range(low, high) if i % 16 == 0)
    return GapPicture(bars, marks)
