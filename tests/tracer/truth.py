"""What a script comes to, counted the slow and plain way: nanoseconds of elementary intervals, lists, no cleverness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tracer.fake_world import Copy, Eager, Replay

Span = tuple[int, int]


def spans_of(work: Iterable[Eager | Copy | Replay]) -> list[Span]:
    """Every single piece of device work."""
    spans: list[Span] = []
    for item in work:
        if isinstance(item, Replay):
            spans += zip(item.starts, item.ends, strict=True)
        else:
            spans.append((item.start, item.end))
    return spans


def union_ns(spans: Sequence[Span], within: Sequence[Span] | None = None) -> int:
    """Time in at least one span, and inside one of `within`."""
    edges = sorted({t for span in [*spans, *(within or [])] for t in span})
    total = 0
    for a, b in pairwise(edges):
        if any(s <= a and b <= e for s, e in spans) and (within is None or any(s <= a and b <= e for s, e in within)):
            total += b - a
    return total


def idle_between(spans: Sequence[Span]) -> list[Span]:
    """Stretches between the first and the last work in which nothing runs."""
    edges = sorted({t for span in spans for t in span})
    idle: list[Span] = []
    for a, b in pairwise(edges):
        if any(s <= a and b <= e for s, e in spans):
            continue
        if idle and idle[-1][1] == a:
            idle[-1] = (idle[-1][0], b)
        else:
            idle.append((a, b))
    return idle
