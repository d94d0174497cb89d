"""Reads the dumps that engines print of their arguments: Python and JSON literals, calls, enum members."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_MAX_DEPTH = 40
_WORDS: Mapping[str, bool | None] = {
    "True": True,
    "true": True,
    "False": False,
    "false": False,
    "None": None,
    "null": None,
    "NULL": None,
}
_KEY = re.compile(r"\s*(?:'([^']*)'|\"([^\"]*)\"|([A-Za-z_]\w*))\s*[:=]\s*")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_BARE = re.compile(r"[^,()\[\]{}<>'\"]*")
_ENUM = re.compile(r"<(?:\w+\.)?(\w+)(?:: [^<>]*)?>|<[^<>]*>")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


def read_arguments(text: str) -> dict[str, object]:
    """Arguments `a=1, b={'c': [2]}, d=Name(e=3)` as a dictionary; nested calls are dictionaries of their arguments.

    Reads as far as the text makes sense: a line cut in the middle gives what stood before the cut.
    """
    return _Reader(text).members("", 0)


def read_value(text: str) -> object:
    """The one value at the start of a text, such as `{'a': 1}` or `[1, 2]`."""
    return _Reader(text).value(0)


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0

    def members(self, closer: str, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while self.at < len(self.text) and not self._closes(closer):
            key = _KEY.match(self.text, self.at)
            start = self.at
            if key:
                self.at = key.end()
                found[key[1] or key[2] or key[3] or ""] = self.value(depth)
            else:
                self.value(depth)
            if not self._next(start, closer):
                break
        return found

    def items(self, closer: str, depth: int) -> list[object]:
        found: list[object] = []
        while self.at < len(self.text) and not self._closes(closer):
            start = self.at
            found.append(self.value(depth))
            if not self._next(start, closer):
                break
        return found

    def value(self, depth: int) -> object:
        self._blank()
        here = self.text[self.at : self.at + 1]
        if here in ("'", '"'):
            return self._quoted(here)
        if here in _CLOSERS and here:
            return self._bracketed(here, depth)
        if here == "<":
            enum = _ENUM.match(self.text, self.at)
            self.at = enum.end() if enum else self.at + 1
            return enum[1] if enum else None
        bare = _BARE.match(self.text, self.at)
        word = bare[0].strip() if bare else ""
        self.at = bare.end() if bare else self.at
        if self.text[self.at : self.at + 1] == "(" and word:
            return self._bracketed("(", depth)
        return _plain(word)

    def _bracketed(self, opener: str, depth: int) -> object:
        closer = _CLOSERS[opener]
        self.at += 1
        if depth >= _MAX_DEPTH:
            self.at = len(self.text)
            return None
        self._blank()
        keyed = opener != "[" and _KEY.match(self.text, self.at) is not None
        inside: object = self.members(closer, depth + 1) if keyed else self.items(closer, depth + 1)
        if self.text[self.at : self.at + 1] == closer:
            self.at += 1
        if opener == "{" and not keyed and not inside:
            return {}
        return inside

    def _quoted(self, quote: str) -> str:
        parts: list[str] = []
        self.at += 1
        while self.at < len(self.text):
            here = self.text[self.at]
            self.at += 1
            if here == quote:
                break
            if here == "\\":
                here = self.text[self.at : self.at + 1]
                self.at += 1
            parts.append(here)
        return "".join(parts)

    def _blank(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def _closes(self, closer: str) -> bool:
        self._blank()
        return bool(closer) and self.text[self.at : self.at + 1] == closer

    def _next(self, start: int, closer: str) -> bool:
        """Step over what separates members; False at the end, or where the text makes no sense any more."""
        self._blank()
        here = self.text[self.at : self.at + 1]
        if here == ",":
            self.at += 1
            return True
        if not here or here == closer or here in ")]}":
            return False
        if self.at == start:
            self.at += 1
        return True


def _plain(word: str) -> object:
    if word in _WORDS:
        return _WORDS[word]
    if len(word) < 30 and _NUMBER.fullmatch(word):
        return float(word) if any(c in word for c in ".eE") else int(word)
    return word


def as_int(value: object) -> int | None:
    """A whole number that is not a truth value; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_text(value: object) -> str | None:
    """A text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def as_bool(value: object) -> bool | None:
    """A truth value; None for anything else."""
    return value if isinstance(value, bool) else None


def as_mapping(value: object) -> Mapping[str, object]:
    """A mapping; empty for anything else."""
    return value if isinstance(value, dict) else {}


def as_sizes(value: object) -> tuple[int, ...] | None:
    """Positive whole numbers in ascending order; None for anything that holds none."""
    if not isinstance(value, (list, tuple)):
        return None
    sizes = sorted({n for item in value if (n := as_int(item)) is not None and 0 < n < 1 << 31})
    return tuple(sizes) or None
