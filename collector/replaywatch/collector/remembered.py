"""Records as the store keeps them: the contract's dataclasses as JSON with their own field names, read back by type."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

LOG = logging.getLogger("replaywatch.collector")
Record = TypeVar("Record")
_ENCODER = msgspec.json.Encoder()


def remember(record: object) -> bytes:
    """A record as bytes."""
    return _ENCODER.encode(record)


def recall(kind: type[Record], content: bytes, what: str) -> Record | None:
    """The record in some bytes; None, with a line in the log, for one that this release cannot read."""
    try:
        found: Record = _reader(cast(Hashable, kind)).decode(content)
    except (msgspec.MsgspecError, UnicodeError) as error:
        LOG.warning("%s is left out, as this release cannot read it: %s", what, error)
        return None
    return found


@cache
def _reader(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
