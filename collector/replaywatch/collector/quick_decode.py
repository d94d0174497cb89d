"""Decoding batches fast: msgspec reads into mirrors of the contract's records, which then become those records.

The mirrors are made from the contract's dataclasses, with the wire form's own bounds. Whatever they do not accept is
given to `contract.wire.decode`, which then decides and words the error: this way is quicker, never laxer.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.wire import MAX_BUCKET, MAX_ENTRIES, MAX_INT, MAX_TEXT, WIRE_VERSION, Batch, decode

Convert = Callable[[Any], Any]
_LEAVES: Final[Mapping[Any, Any]] = {
    bool: bool,
    int: Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT - 1)],
    float: Annotated[float, Meta(ge=-1e300, le=1e300)],
    str: Annotated[str, Meta(max_length=MAX_TEXT)],
}
_INT: Final = _LEAVES[int]
# The wire form takes keys of at most 19 characters, the sign included.
_KEYS: Final[Mapping[Any, Any]] = {**_LEAVES, int: Annotated[int, Meta(ge=1 - 10**18, le=MAX_INT - 1)]}
_INT_KEY: Final = _KEYS[int]


class _WireHistogram(msgspec.Struct, gc=False):
    n: _INT  # type: ignore[valid-type]
    s: _INT  # type: ignore[valid-type]
    b: Annotated[dict[_INT_KEY, _INT], Meta(max_length=MAX_ENTRIES)] = {}  # type: ignore[valid-type]
    z: _INT = 0  # type: ignore[valid-type]


class _Unfit(ValueError):
    """Something that only the slow way may judge."""


def decode_quickly(data: bytes) -> Batch:
    """The batch in some bytes, as `contract.wire.decode` gives it. Raises: SchemaVersionError, WireError."""
    reader, convert = _batch_reader()
    try:
        # msgspec does not look into the texts that it skips, which the contract's reader would refuse.
        if not data.isascii():
            data.decode("utf-8")
        batch = convert(reader.decode(data))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, _Unfit):
        return decode(data)
    assert isinstance(batch, Batch)
    return batch


@cache
def _batch_reader() -> tuple[msgspec.json.Decoder[Any], Convert]:
    mirror, convert = _mirror(Batch)
    assert convert is not None
    return msgspec.json.Decoder(
        msgspec.defstruct("WireBatch", [("v", Literal[WIRE_VERSION])], bases=(mirror,))
    ), convert


@cache
def _mirror(hint: Any) -> tuple[Any, Convert | None]:
    """What msgspec shall read for a type hint, and how that becomes the real thing; None where it already is."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner, convert = _mirror(next(a for a in args if a is not type(None)))
        return inner | None, None if convert is None else _unless_none(convert)
    if origin is Literal:
        return hint, None
    if origin is tuple:
        inner, convert = _mirror(args[0])
        mirror = tuple.__class_getitem__((inner, ...))
        return mirror, None if convert is None else lambda values: tuple(map(convert, values))
    if origin is not None and issubclass(origin, Mapping):
        return _mirror_mapping(args[0], args[1])
    if hint is Histogram:
        return _WireHistogram, _histogram
    return _mirror_record(hint) if is_dataclass(hint) else (_LEAVES[hint], None)


def _mirror_mapping(key: Any, value: Any) -> tuple[Any, Convert | None]:
    inner, convert = _mirror(value)
    mirror = Annotated[dict[_KEYS[key], inner], Meta(max_length=MAX_ENTRIES)]  # type: ignore[valid-type]
    return mirror, None if convert is None else lambda values: {k: convert(v) for k, v in values.items()}


def _mirror_record(kind: Any) -> tuple[Any, Convert]:
    hints = get_type_hints(kind)
    rows: list[Any] = []
    converts: list[tuple[int, Convert, Any]] = []
    for place, f in enumerate(fields(kind)):
        mirror, convert = _mirror(hints[f.name])
        if convert is not None:
            converts.append((place, convert, f.default))
        if f.default is not MISSING:
            rows.append((f.name, mirror, f.default))
        elif f.default_factory is not MISSING:
            rows.append((f.name, mirror, msgspec.field(default_factory=f.default_factory)))
        else:
            rows.append((f.name, mirror))
    struct = msgspec.defstruct(f"Wire{kind.__name__}", rows, kw_only=True, gc=False)
    return struct, _record_maker(kind, converts)


def _record_maker(kind: Any, converts: list[tuple[int, Convert, Any]]) -> Convert:
    names = tuple(f.name for f in fields(kind))
    read = attrgetter(*names)

    def plain(found: Any) -> Any:
        return kind(**dict(zip(names, read(found), strict=True)))

    def nested(found: Any) -> Any:
        values = list(read(found))
        for place, convert, default in converts:
            # A default is the contract's own object already.
            if values[place] is not default:
                values[place] = convert(values[place])
        return kind(**dict(zip(names, values, strict=True)))

    return nested if converts else plain


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _histogram(found: _WireHistogram) -> Histogram:
    buckets: dict[int, int] = found.b
    if found.z < 0 or sum(buckets.values()) + found.z != found.n:
        raise _Unfit
    if buckets and not (min(buckets.values()) >= 0 and min(buckets) >= 0 and max(buckets) <= MAX_BUCKET):
        raise _Unfit
    return Histogram(found.n, found.s, found.z, buckets)
