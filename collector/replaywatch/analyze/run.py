"""Read, judge and write: the whole of `replaywatch analyze`, without printing or exiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from replaywatch.analyze.result import Report, Unreadable, join_reports, judge_recording
from replaywatch.contract.errors import SourceError
from replaywatch.sources.engine_metrics import read_metrics, scrape
from replaywatch.sources.reader import read
from replaywatch.sources.recording import Progress, Recording

SCRAPE_SECONDS = 10.0


def analyze(sources: Iterable[str], progress: Callable[[str], Progress | None] = lambda _: None) -> Report:
    """Judge files and http(s) metrics addresses; whatever cannot be read becomes one sentence in the report."""
    return join_reports([_analyze_one(source, progress(source)) for source in sources])


def _analyze_one(source: str, progress: Progress | None) -> Report:
    try:
        results = judge_recording(_read(source, progress))
        return Report(tuple(replace(result, source=source) for result in results))
    except SourceError as error:
        return Report((), (Unreadable(source, str(error)),))


def _read(source: str, progress: Progress | None) -> Recording:
    if source.startswith(("http://", "https://")):
        return read_metrics(scrape(source, SCRAPE_SECONDS), source)
    return read(Path(source), progress)
