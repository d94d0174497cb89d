"""Reading a pod that somebody sent: whatever is not what it should be counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Json: TypeAlias = Mapping[str, object]


def object_at(thing: Json, *keys: str) -> Json:
    """The object under these keys; empty where there is none."""
    for key in keys:
        below = thing.get(key)
        if not isinstance(below, dict):
            return {}
        thing = below
    return thing


def objects_at(thing: Json, key: str) -> list[Json]:
    """The objects of the list under this key, each at its own position; empty where there is none."""
    below = thing.get(key)
    return [one if isinstance(one, dict) else {} for one in below] if isinstance(below, list) else []


def text_at(thing: Json, key: str) -> str:
    """The text under this key; empty where there is none."""
    below = thing.get(key)
    return below if isinstance(below, str) else ""
