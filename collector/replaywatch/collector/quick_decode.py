"""Decoding batches fast: msgspec reads into mirrors of the contract's records, and makes those records of them.

The mirrors are made from the contract's dataclasses, with the wire form's own bounds. Whatever they do not accept is
given to `contract.wire.decode`, which then decides and words the error: this way is quicker, never laxer.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.wire import MAX_BUCKET, MAX_ENTRIES, MAX_INT, MAX_TEXT, WIRE_VERSION, Batch, decode

_LEAVES: Final[Mapping[Any, Any]] = {
    bool: bool,
    int: Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT - 1)],
    float: Annotated[float, Meta(ge=-1e300, le=1e300)],
    str: Annotated[str, Meta(max_length=MAX_TEXT)],
}
# The wire form takes keys of at most 19 characters, the sign included.
_KEYS: Final[Mapping[Any, Any]] = {**_LEAVES, int: Annotated[int, Meta(ge=1 - 10**18, le=MAX_INT - 1)]}
_INT: Final = _LEAVES[int]
_INT_KEY: Final = _KEYS[int]
_SHORT: Final = {"count": "n", "sum": "s", "zero": "z", "buckets": "b"}


class _WireHistogram(msgspec.Struct, gc=False, rename=_SHORT):
    """A histogram in its short form, with the attributes of the real one."""

    count: _INT  # type: ignore[valid-type]
    sum: _INT  # type: ignore[valid-type]
    zero: _INT = 0  # type: ignore[valid-type]
    buckets: Annotated[dict[_INT_KEY, _INT], Meta(max_length=MAX_ENTRIES)] = {}  # type: ignore[valid-type]

    def __post_init__(self) -> None:
        buckets: dict[int, int] = self.buckets
        counts = buckets.values()
        if self.zero < 0 or sum(counts) + self.zero != self.count:
            raise ValueError("the buckets do not add up")
        if buckets and not (min(counts) >= 0 and min(buckets) >= 0 and max(buckets) <= MAX_BUCKET):
            raise ValueError("a bucket is out of range")


def decode_quickly(data: bytes) -> Batch:
    """The batch in some bytes, as `contract.wire.decode` gives it. Raises: SchemaVersionError, WireError."""
    try:
        # msgspec does not look into the texts that it skips, which the contract's reader would refuse.
        if not data.isascii():
            data.decode("utf-8")
        return msgspec.convert(_reader().decode(data), Batch, from_attributes=True)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return decode(data)


@cache
def _reader() -> msgspec.json.Decoder[Any]:
    versioned = msgspec.defstruct("WireBatch", [("v", Literal[WIRE_VERSION])], bases=(_mirror(Batch),), kw_only=True)
    return msgspec.json.Decoder(versioned)


@cache
def _mirror(hint: Any) -> Any:
    """What msgspec shall read for a type hint."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _mirror(next(a for a in args if a is not type(None))) | None
    if origin is Literal:
        return hint
    if origin is tuple:
        return tuple.__class_getitem__((_mirror(args[0]), ...))
    if origin is not None and issubclass(origin, Mapping):
        key, value = _KEYS[args[0]], _mirror(args[1])
        return Annotated[dict[key, value], Meta(max_length=MAX_ENTRIES)]  # type: ignore[valid-type]
    if hint is Histogram:
        return _WireHistogram
    return _mirror_record(hint) if is_dataclass(hint) else _LEAVES[hint]


def _mirror_record(kind: Any) -> Any:
    hints = get_type_hints(kind)
    rows: list[Any] = []
    for f in fields(kind):
        mirror = _mirror(hints[f.name])
        if f.default is not MISSING:
            rows.append((f.name, mirror, f.default))
        elif f.default_factory is not MISSING:
            rows.append((f.name, mirror, msgspec.field(default_factory=f.default_factory)))
        else:
            rows.append((f.name, mirror))
    return msgspec.defstruct(f"Wire{kind.__name__}", rows, kw_only=True, gc=False)
