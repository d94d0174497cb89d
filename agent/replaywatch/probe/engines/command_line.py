"""What the command line asks of an engine, and the configuration file that it names.

Engines read `--config FILE` as more options, which those of the command line override; processes that they start have
the same command line.

Source: `FlexibleArgumentParser` of vLLM (0.9.2 to 0.33.0), `ConfigArgumentMerger` of SGLang (0.5.9 to 0.5.23).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

LINE = "the command line"
FILE = "the configuration file"
MAX_FILE_BYTES = 1 << 20
MIN_ABBREVIATION = 3  # characters; below, it is the short option of somebody else (-c, -O)
_VALUE = re.compile(r"[^-]|-[\d.]|-$")
_NO = ("false", "0", "no", "off")


class Ask(NamedTuple):
    """A graph mode that somebody asked for: the mode, the option that says so, and where it was written."""

    mode: str
    option: str
    where: str


def options(words: Sequence[str]) -> dict[str, str]:
    """Options without leading dashes, in the order of their last mention.

    Names have dashes for underscores up to their first dot; the value is "" where none follows.
    """
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if _VALUE.match(word):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = plain(name)
        if not name:
            continue
        found.pop(name, None)
        found[name] = value if equals else (following if _VALUE.match(following) else "")
    return found


def plain(name: str) -> str:
    """An option's name with dashes, parts after a dot as they are."""
    head, dot, rest = name.partition(".")
    return head.replace("_", "-") + dot + rest


def file_options(path: str) -> dict[str, str]:
    """Options that a configuration file sets; none where it cannot be read, or nobody loaded a reader of YAML."""
    yaml = sys.modules.get("yaml")
    if yaml is None or not os.path.isfile(path) or os.path.getsize(path) > MAX_FILE_BYTES:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {plain(str(name)): _text(value) for name, value in content.items()}


def asked_of_command(words: Sequence[str]) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """Places and the options that they set, those that override first. Shape: `words` after the program's name."""
    return _asked_of_command(tuple(words))


def switch(found: Mapping[str, str], name: str) -> bool | None:
    """Whether a flag is given; False where it is negated, None where nothing is said of it."""
    negations = {said: not spells(said, name) for said in found if spells(said, name) or spells(said, f"no-{name}")}
    if not negations:
        return None
    said, negated = list(negations.items())[-1]
    return negated if found[said].lower() in _NO else not negated


def value_of(found: Mapping[str, str], name: str) -> str:
    """The value that an option was given last; "" where there is none."""
    return next((found[said] for said in reversed(list(found)) if spells(said, name)), "")


def spells(said: str, name: str) -> bool:
    """Whether a word means an option: by its name, or by its beginning, which argparse takes where it is the only one.

    A beginning that several options share stops an engine at its start, so none is seen here.
    """
    return said == name or (len(said) >= MIN_ABBREVIATION and name.startswith(said))


def as_object(text: str) -> dict[str, Any]:
    """A JSON object; an empty one for any other text."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def first(asks: Iterable[Ask | None]) -> Ask | None:
    """The first ask that there is."""
    return next((ask for ask in asks if ask is not None), None)


@lru_cache(maxsize=8)
def _asked_of_command(words: tuple[str, ...]) -> tuple[tuple[str, Mapping[str, str]], ...]:
    line = (LINE, options(words))
    named = [path for word, path in pairwise(words) if word == "--config"]
    return (line, (FILE, file_options(named[0]))) if named else (line,)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (dict, list)):
        return str(value)
    try:
        return json.dumps(value, default=str, skipkeys=True)  # YAML has dates, bytes and sets, and any of them as keys
    except ValueError:  # a part that holds itself
        return str(value)
