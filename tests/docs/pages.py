"""The documentation's pages and what they say: commands, paths, variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def pages() -> list[Path]:
    """Every page of the site, and the README."""
    found = [p for p in DOCS.rglob("*.md") if not p.relative_to(DOCS).parts[0].startswith("_")]
    return [*sorted(found), ROOT / "README.md"]


def blocks(text: str, language: str) -> Iterator[str]:
    """The fenced blocks of a language."""
    for match in _BLOCK.finditer(text):
        if match[1] == language:
            yield match[2]


def commands(text: str) -> Iterator[list[str]]:
    """The commands of console blocks as words: continued lines joined, `A && B` split, settings left out."""
    for block in blocks(text, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s&&\s", line):
                words = shlex.split(part, comments=True)
                while words and re.fullmatch(r"\w+=.*", words[0]):
                    words.pop(0)
                if words:
                    yield words


def of_replaywatch(text: str) -> Iterator[list[str]]:
    """Arguments of every `replaywatch` command in a page, without redirections."""
    for words in commands(text):
        if words[0].rsplit("/", 1)[-1] == "replaywatch":
            ends = [i for i, word in enumerate(words) if re.match(r"\d?[<>|&]", word)]
            yield words[1 : ends[0]] if ends else words[1:]
