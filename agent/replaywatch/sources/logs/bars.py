"""Progress bars of graph captures: how many graphs, which sizes, how long."""

from __future__ import annotations

import re

from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.rules import DECIMAL
from replaywatch.sources.logs.run import EngineRun

_BAR = re.compile(
    r"(?P<what>Captur\w+ [^|%]*?)?:?\s*\d+%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+) \[(?P<elapsed>\d+(?::\d+){0,3})<"
    rf"(?:[^,\]]*, *(?P<rate>{DECIMAL})(?P<unit>it/s|s/it))?"
)
_SIZE = re.compile(r"\((?:bs|num_tokens)=(?P<size>\d+)\b")


def read(line: LogLine, run: EngineRun) -> bool:
    """Take a capture's progress; False when the line is no bar of a capture."""
    match = _BAR.search(line.message) if "%|" in line.message else None
    if match is None or not (match["what"] or run.capturing):
        return False
    run.started, run.capturing, run.milestone = True, True, "capturing graphs"
    done, total = int(match["done"]), int(match["total"])
    size = _SIZE.search(line.message)
    if size and "bs=" in size[0]:
        _add_size(int(size["size"]), run)
    if done < total or total == 0:
        run.bar_is_done = False
    elif not run.bar_is_done:
        run.bar_is_done = True
        run.bar_graphs += total
        run.bar_ns += _duration_ns(match, total)
    return True


def _duration_ns(match: re.Match[str], total: int) -> int:
    """Nanoseconds of the whole bar; the rate is finer than the clock beside it."""
    rate = float(match["rate"]) if match["rate"] else 0.0
    if rate > 0:
        return int(total / rate * 1e9) if match["unit"] == "it/s" else int(total * rate * 1e9)
    seconds = 0
    for part in match["elapsed"].split(":"):
        seconds = seconds * 60 + int(part)
    return seconds * 1_000_000_000


def _add_size(size: int, run: EngineRun) -> None:
    known = run.config.capture_sizes or ()
    if size > 0 and size not in known and run.planned_graphs is None:
        run.configure(capture_sizes=tuple(sorted({*known, size})), capture_unit="sequences")


def settle(line: LogLine, run: EngineRun) -> None:
    """Count the graphs of bars that ran to their end, where no line of the engine summed them up."""
    if run.bar_graphs and not run.capturing:
        if run.leads(line):
            run.tally(line).captured(run.bar_graphs, run.bar_ns)
        run.bar_graphs, run.bar_ns = 0, 0
