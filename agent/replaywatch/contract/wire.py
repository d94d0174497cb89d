"""The versioned wire form: a `Batch` of windows and the snapshots they point to, as JSON.

One frame from a probe (a datagram) and one batch from an agent (an HTTP body) have the same shape::

    {"v": 1, "key": "…", "sent_ns": 0, "windows": […], "fingerprints": {id: …}, "configs": {id: …}}

Missing measurements are absent; unknown keys of the same version are ignored, so that a minor release may add fields;
another version is refused. Anything else that does not fit raises WireError, whatever the bytes.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from replaywatch.contract.errors import SchemaVersionError, WireError
from replaywatch.contract.histogram import BUCKETS_PER_DOUBLING, Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Window

WIRE_VERSION: Final = 1
MAX_TEXT: Final = 2000
MAX_ENTRIES: Final = 4096
MAX_INT: Final = 1 << 63
MAX_BUCKET: Final = 64 * BUCKETS_PER_DOUBLING


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Windows on their way. `key` is the idempotency key: a batch with a key that was seen has no effect."""

    key: str
    sent_ns: int
    windows: tuple[Window, ...]
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    configs: Mapping[str, EngineConfig] = field(default_factory=dict)


def jsonable(value: Any) -> Any:
    """A record as JSON values; absent where it equals its default, histograms in short form."""
    if isinstance(value, Histogram):
        short: dict[str, Any] = {"n": value.count, "s": value.sum, "b": {str(i): c for i, c in value.buckets.items()}}
        return short | {"z": value.zero} if value.zero else short
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: jsonable(v)
            for f in fields(value)
            if (v := getattr(value, f.name)) is not None and not (f.default is not MISSING and v == f.default)
        }
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    return value


def encode(batch: Batch) -> bytes:
    """A batch as compact UTF-8 JSON."""
    body = {"v": WIRE_VERSION, **jsonable(batch)}
    body.setdefault("windows", [])
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def decode(data: bytes) -> Batch:
    """The batch in some bytes.

    Raises: SchemaVersionError for another version, WireError for anything else that does not fit.
    """
    try:
        body = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the batch is not JSON ({error}); check that the sender is a Replaywatch agent") from None
    if not isinstance(body, dict):
        raise WireError("the batch is not a JSON object; check that the sender is a Replaywatch agent")
    version = body.get("v")
    if version != WIRE_VERSION:
        raise SchemaVersionError(
            f"wire version {str(version)[:20]} is not spoken here (this release speaks {WIRE_VERSION}); "
            "update the older side"
        )
    batch = decode_record(Batch, body)
    assert isinstance(batch, Batch)
    return batch


def decode_record(kind: type, value: Any) -> Any:
    """A record of a contract type out of JSON values, checked field by field. Raises: WireError."""
    return _decoder(kind)(value, kind.__name__)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in the wire form")


Decoder = Callable[[Any, str], Any]


@cache
def _decoder(hint: Any) -> Decoder:
    """The checking decoder of a type hint."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        return _optional(_decoder(inner[0]))
    if origin is Literal:
        return _literal(args)
    if origin is tuple:
        return _sequence(_decoder(args[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(args[0], _decoder(args[1]))
    if hint is Histogram:
        return _histogram
    if is_dataclass(hint):
        return _record(hint)
    return {bool: _bool, int: _int, float: _float, str: _str}[hint]


def _optional(inner: Decoder) -> Decoder:
    return lambda value, at: None if value is None else inner(value, at)


def _literal(allowed: tuple[Any, ...]) -> Decoder:
    def check(value: Any, at: str) -> Any:
        if value not in allowed:
            raise WireError(f"{at} must be one of {', '.join(map(str, allowed))}, not {str(value)[:40]!r}")
        return value

    return check


def _sequence(inner: Decoder) -> Decoder:
    def check(value: Any, at: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise WireError(f"{at} must be a list")
        return tuple(inner(v, at) for v in value)

    return check


def _mapping(key_type: type, inner: Decoder) -> Decoder:
    def check(value: Any, at: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise WireError(f"{at} must be an object")
        if len(value) > MAX_ENTRIES:
            raise WireError(f"{at} has {len(value)} entries; at most {MAX_ENTRIES} are accepted")
        return {_key(k, key_type, at): inner(v, at) for k, v in value.items()}

    return check


def _key(text: str, key_type: type, at: str) -> Any:
    if key_type is int:
        try:
            return _int(int(text) if len(text) < 20 else text, at)
        except ValueError:
            raise WireError(f"{at} has the key {text[:40]!r}, which is not an integer") from None
    return _str(text, at)


def _bool(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        raise WireError(f"{at} must be true or false")
    return value


def _int(value: Any, at: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -MAX_INT <= value < MAX_INT:
        raise WireError(f"{at} must be an integer of 64 bits")
    return value


def _float(value: Any, at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        raise WireError(f"{at} must be a number")
    return float(value)


def _str(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise WireError(f"{at} must be a text")
    if len(value) > MAX_TEXT:
        raise WireError(f"{at} has {len(value)} characters; at most {MAX_TEXT} are accepted")
    return value


def _histogram(value: Any, at: str) -> Histogram:
    if not isinstance(value, dict):
        raise WireError(f"{at} must be a histogram object")
    buckets = _mapping(int, _int)(value.get("b", {}), f"{at}.b")
    count, zero = _int(value.get("n"), f"{at}.n"), _int(value.get("z", 0), f"{at}.z")
    if min(buckets.values(), default=0) < 0 or zero < 0 or sum(buckets.values()) + zero != count:
        raise WireError(f"{at} has buckets that do not add up to its count")
    if buckets and not (min(buckets) >= 0 and max(buckets) <= MAX_BUCKET):
        raise WireError(f"{at} has buckets outside 0 to {MAX_BUCKET}, where integers of 64 bits lie")
    return Histogram(count, _int(value.get("s"), f"{at}.s"), zero, buckets)


def _record(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    inner = {f.name: _decoder(hints[f.name]) for f in fields(kind)}
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    name = kind.__name__

    def check(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            raise WireError(f"{at} must be an object ({name})")
        missing = [f for f in required if f not in value]
        if missing:
            raise WireError(f"{at} lacks {', '.join(missing)}")
        return kind(**{k: inner[k](v, f"{at}.{k}") for k, v in value.items() if k in inner})

    return check
