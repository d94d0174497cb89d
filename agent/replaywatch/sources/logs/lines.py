"""Text as it arrives to whole lines: chunks joined, colours removed, progress bars and overwritten lines split."""

from __future__ import annotations

import re

# A server's dump of its arguments is 16 to 20 thousand characters; what is longer is not a log line.
MAX_LINE_CHARS = 1 << 16
_BREAK = re.compile(r"[\r\n]+")
# Escape sequences: as bytes, as a pager shows them (^[[0m), and as journald and syslog write them (#033[0m).
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|(?:\^\[|#033)\[[0-9;]*m")
# A bar has no line end of its own: what another process writes next stands directly behind it.
_AFTER_BAR = re.compile(r"(?<=it/s\])(?=\S)|(?<=s/it\])(?=\S)")


class LineSplitter:
    """Joins chunks of text into lines; the result does not depend on where the chunks were cut."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = ""

    def feed(self, text: str) -> list[str]:
        """Lines completed by this chunk, without line ends, colours and blank lines."""
        parts = _BREAK.split(text)
        parts[0] = self._tail + parts[0]
        self._tail = parts.pop()[:MAX_LINE_CHARS]
        return [line for part in parts for line in _clean(part)]

    def finish(self) -> list[str]:
        """What remains when the text has ended without a line end."""
        tail, self._tail = self._tail, ""
        return _clean(tail)


def _clean(part: str) -> list[str]:
    text = part[:MAX_LINE_CHARS]
    if "\x1b" in text or "^[" in text or "#033" in text:
        text = _COLOUR.sub("", text)
    text = text.rstrip()
    if not text:
        return []
    return [piece for piece in _AFTER_BAR.split(text) if piece.strip()] if "it]" in text or "/s]" in text else [text]
