"""What happened between two scrapes of one endpoint."""

from __future__ import annotations

from dataclasses import replace

from replaywatch.sources.engine_metrics.exposition import Exposition, Labels, Sample

_STARTED = "process_start_time_seconds"
# Labels that name who counts. Others (a mode, a bucket's bound) divide what one of them counted.
_WHO = frozenset({"model_name", "engine", "dp_rank", "pp_rank", "tp_rank"})


def difference(previous: Exposition, current: Exposition) -> Exposition:
    """Cumulative samples as what they grew by; all others as they are now.

    When the process behind the page was replaced in between (its start time changed), all that it counted so far is
    what happened; when something that only grows has shrunk, this holds for the replica that counted it.
    """
    before = {(s.name, s.labels): s.value for s in previous.samples if previous.is_cumulative(s)}
    if _started_anew(previous, current):
        before = {}
    anew = {_who(s) for s in current.samples if current.is_cumulative(s) and _shrank(s, before)}
    samples = tuple(
        replace(sample, value=sample.value - before.get((sample.name, sample.labels), 0.0))
        if current.is_cumulative(sample) and _who(sample) not in anew
        else sample
        for sample in current.samples
    )
    return Exposition(samples, current.types)


def _started_anew(previous: Exposition, current: Exposition) -> bool:
    starts = [{s.value for s in page.named(_STARTED)} for page in (previous, current)]
    return bool(starts[0] and starts[1] and not starts[0] & starts[1])


def _who(sample: Sample) -> Labels:
    return tuple(label for label in sample.labels if label[0] in _WHO)


def _shrank(sample: Sample, before: dict[tuple[str, Labels], float]) -> bool:
    return sample.value < before.get((sample.name, sample.labels), sample.value)


def started_ns(page: Exposition) -> int | None:
    """When the process behind a page started, Unix nanoseconds; None when it does not say."""
    for sample in page.named(_STARTED):
        if 0 < sample.value < 1e11:
            return int(sample.value * 1e9)
    return None
