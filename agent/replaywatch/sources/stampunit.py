"""The unit of a trace's stamps: microseconds as the format says, or nanoseconds as some writers have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replaywatch.sources.calls import CAPTURE_END
from replaywatch.sources.timeline import Timeline

MICROSECOND: Final = 1000
# Larger than any Unix time in microseconds before the year 5000: a stamp in nanoseconds.
_NANOSECOND_STAMP: Final = 10**17
_TOO_LONG_US: Final = 500


def scale_of(stamps: Sequence[float]) -> int:
    """Nanoseconds per unit of some stamps: 1000, or 1 where they are too large for microseconds."""
    return 1 if sorted(stamps)[len(stamps) // 2] > _NANOSECOND_STAMP else MICROSECOND


def lasts_too_long(timeline: Timeline) -> bool:
    """Whether launch calls and kernels are all so long that their unit must be nanoseconds, not microseconds."""
    kernels = sorted(e - s for t in timeline.devices.values() for s, e in zip(t.start, t.end, strict=True))
    calls = sorted(
        e - s for t in timeline.threads for s, e, k in zip(t.start, t.end, t.kind, strict=True) if k < CAPTURE_END
    )
    if len(kernels) < 4 or kernels[len(kernels) // 10] < _TOO_LONG_US * 1000:
        return False
    return not calls or calls[len(calls) // 10] >= _TOO_LONG_US * 1000


def divide_times(timeline: Timeline, by: int) -> None:
    """Divide all times of a timeline, which was filled in a unit too large."""
    for track in timeline.devices.values():
        for column in (track.start, track.end):
            for i, value in enumerate(column):
                column[i] = value // by
    for thread in timeline.threads:
        thread.blocking = {value // by for value in thread.blocking}
        for column in (thread.start, thread.end, thread.cpu_ops, thread.python_calls, thread.runtime_calls):
            for i, value in enumerate(column):
                column[i] = value // by
    for annotation in timeline.annotations:
        annotation.start_ns //= by
        annotation.end_ns //= by
