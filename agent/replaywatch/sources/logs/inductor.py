"""What torch.compile says when it gives up graphs or records them again (torch 2.4 to 2.14).

Skips are logged when a function is compiled or called, not for every step, so they become observations with a count
and never a number of steps.
"""

from __future__ import annotations

import re

from replaywatch.sources.logs.prefix import LogLine
from replaywatch.sources.logs.privacy import short_path
from replaywatch.sources.logs.run import EngineRun

_RERECORD_LIMIT = re.compile(
    r"skipping cudagraph due to function (?P<function>\d+) exceeding max re-recording limit \(=(?P<limit>\d+)\) on "
    r"cudagraph node \S+ due to (?P<reason>.*?)\.?$"
)
_SKIP = re.compile(
    r"(?:skipping cudagraphs? due to|(?P<disabling>disabling cudagraphs(?: for backward)?) due to) "
    r"(?P<reason>.*?)\.?(?P<stack> Found from ?:.*)?$"
)
_SIZES = re.compile(r"We have observed (?P<n>\d+) distinct sizes")
_RERECORDING = re.compile(r"Re-recording (?:of )?function=(?P<function>\d+).*?reason=(?P<reason>.*)")
_RECORDING = re.compile(r"(?<!-)\bRecording (?:of )?function=(?P<function>\d+)")
_WARMUP = re.compile(r"Running warmup (?:of )?function=\d+")
_EAGER = re.compile(r"Running eager (?:of )?function=\d+")
_FRAME = re.compile(r"File \"(?P<file>[^\"]+)\", line (?P<line>\d+)")
_SIGNS = re.compile(
    r"skipping cudagraph|disabling cudagraphs|distinct sizes|ecording (?:of )?function="
    r"|Running (?:warmup|eager) (?:of )?function="
)
_MAX_STACK_LINES = 64


def is_about(message: str) -> bool:
    """Whether a message is one of Inductor's about graphs."""
    return _SIGNS.search(message) is not None


class SkipReader:
    """Reads Inductor's lines of one run; a skip's stack continues over the following indented lines."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._line: LogLine | None = None
        self._where: str | None = None
        self._lines = 0

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to a skip's stack."""
        return self._reason is not None

    def read(self, line: LogLine, run: EngineRun) -> bool:
        """Take what a line says of graphs; False when it says nothing."""
        if self._reason is not None and self._continues(line, run):
            return True
        message = line.message
        if not is_about(message):
            return False
        if match := _RERECORD_LIMIT.search(message):
            detail = f"re-recording limit {match['limit']} exceeded due to {match['reason']}"
            run.observe("inductor_skip", detail, line)
        elif match := _SKIP.search(message):
            self._open(match, line, run)
        elif match := _SIZES.search(message):
            run.observe("dynamic_shapes", f"a graph was recorded for each of {match['n']} distinct input sizes", line)
        elif match := _RERECORDING.search(message):
            run.observe("inductor_rerecord", f"function {match['function']}: {match['reason']}", line)
        elif _RECORDING.search(message):
            run.tally(line).captures["ok"] += 1
        elif _WARMUP.search(message):
            run.tally(line).fallbacks["warm_up"] += 1
        elif _EAGER.search(message):
            run.tally(line).fallbacks["other"] += 1
        else:
            return False
        return True

    def close(self, run: EngineRun) -> None:
        """Count the skip whose stack was being read."""
        if self._reason is not None and self._line is not None:
            run.observe("inductor_skip", self._reason, self._line, where=self._where or self._line.where)
        self._reason, self._line, self._where, self._lines = None, None, None, 0

    def _open(self, match: re.Match[str], line: LogLine, run: EngineRun) -> None:
        reason = match["reason"].strip()
        self._reason = f"{match['disabling']} due to {reason}" if match["disabling"] else reason
        self._line = line
        if match["stack"] is None:
            self.close(run)
        else:
            self._frame(match["stack"])

    def _continues(self, line: LogLine, run: EngineRun) -> bool:
        indented = line.message[:1].isspace() or not line.message
        if not indented or self._lines >= _MAX_STACK_LINES:
            self.close(run)
            return False
        self._lines += 1
        self._frame(line.message)
        return True

    def _frame(self, text: str) -> None:
        if match := _FRAME.search(text):
            self._where = f"{short_path(match['file'])}:{match['line']}"
