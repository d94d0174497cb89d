"""What happened between two scrapes of one process."""

from __future__ import annotations

from dataclasses import replace

from replaywatch.sources.engine_metrics.exposition import Exposition, Labels, Sample

_STARTED = "process_start_time_seconds"


def difference(previous: Exposition, current: Exposition) -> Exposition:
    """Cumulative samples as what they grew by; all others as they are now.

    When the process was replaced in between (its start time changed, or something that only grows has shrunk), all
    that it counted so far is what happened.
    """
    before = {(s.name, s.labels): s.value for s in previous.samples if previous.is_cumulative(s)}
    if _replaced(previous, current, before):
        before = {}
    samples = tuple(
        replace(sample, value=sample.value - before.get((sample.name, sample.labels), 0.0))
        if current.is_cumulative(sample)
        else sample
        for sample in current.samples
    )
    return Exposition(samples, current.types)


def _replaced(previous: Exposition, current: Exposition, before: dict[tuple[str, Labels], float]) -> bool:
    starts = [{s.value for s in page.named(_STARTED)} for page in (previous, current)]
    if starts[0] and starts[1] and not starts[0] & starts[1]:
        return True
    return any(_shrank(sample, before) for sample in current.samples if current.is_cumulative(sample))


def _shrank(sample: Sample, before: dict[tuple[str, Labels], float]) -> bool:
    return sample.value < before.get((sample.name, sample.labels), sample.value)


def started_ns(page: Exposition) -> int | None:
    """When the process behind a page started, Unix nanoseconds; None when it does not say."""
    for sample in page.named(_STARTED):
        if 0 < sample.value < 1e11:
            return int(sample.value * 1e9)
    return None
