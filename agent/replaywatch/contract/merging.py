"""Records merge field by field: numbers, counts and histograms add, gauges take the later value.

A field says how with its metadata: `merge` is `sum` where it says nothing, else `last` or `max`. None is what was not
measured, and gives way to what was.

Merging is most of what a collector does with a window. So the fields of a type are sorted by what they hold once, and
then merged kind by kind without looking at each value; and a record is made by setting its slots, not by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, reduce
from operator import attrgetter, itemgetter
from typing import Any, TypeVar, cast

from replaywatch.contract.histogram import Histogram

Record = TypeVar("Record")
Write = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Fields of one type that merge alike. Shape: `read` gives their values of a record, each of `writes` sets one."""

    how: str
    read: Callable[[Any], Sequence[Any]]
    writes: tuple[Write, ...]


@cache
def _plans_of(kind: type[Any]) -> tuple[_Plan, ...]:
    """Plans in no particular order: gauges, numbers, histograms, counts, and the rest."""
    by_how: dict[str, list[str]] = {}
    for field in fields(kind):
        how = field.metadata.get("merge", "sum")
        by_how.setdefault(_held_by(str(field.type)) if how == "sum" else how, []).append(field.name)
    return tuple(_plan(kind, how, names) for how, names in by_how.items())


def _plan(kind: type[Any], how: str, names: list[str]) -> _Plan:
    one = attrgetter(names[0])
    read = attrgetter(*names) if len(names) > 1 else lambda record: (one(record),)
    return _Plan(how, read, tuple(getattr(kind, name).__set__ for name in names))


def _held_by(annotation: str) -> str:
    first = annotation.split("[")[0].split(" ")[0]
    return {"int": "number", "float": "number", "Histogram": "histogram", "Mapping": "counts"}.get(first, "sum")


def merge_records(a: Record, b: Record) -> Record:
    """Two records of one type, field by field: sums, except where a field's metadata says last or max; b is later."""
    merged: Record = object.__new__(type(a))
    for plan in _plans_of(cast(Any, type(a))):
        how, pairs = plan.how, zip(plan.writes, plan.read(a), plan.read(b), strict=True)
        if how == "last":
            for write, x, y in pairs:
                write(merged, x if y is None else y)
        elif how == "number":
            for write, x, y in pairs:
                write(merged, x if y is None else y if x is None else x + y)
        elif how == "histogram":
            for write, x, y in pairs:
                write(merged, x if y is None else y if x is None else x.merge(y))
        elif how == "counts":
            for write, x, y in pairs:
                write(merged, x if not y and x is not None else y if not x else _add(dict(x), y))
        else:
            for write, x, y in pairs:
                write(merged, x if y is None else y if x is None else _merge_two(x, y, how))
    return merged


def merge_all_records(records: Sequence[Record]) -> Record:
    """The same for any number of records, at least one, in their order; one pass, so nothing between is made."""
    merged: Record = object.__new__(type(records[0]))
    for plan in _plans_of(cast(Any, type(records[0]))):
        put = _ALL.get(plan.how)
        for write, values in zip(plan.writes, zip(*map(plan.read, records), strict=True), strict=True):
            known = [v for v in values if v is not None]
            if len(known) > 1:
                write(merged, put(known) if put is not None else _merge_known(known, plan.how))
            else:
                write(merged, known[0] if known else None)
    return merged


def merge_values(values: Sequence[Any]) -> Any:
    """Records or sums, as far as they are not None."""
    known = [v for v in values if v is not None]
    return _merge_known(known, "sum") if known else None


def _merge_known(known: Sequence[Any], how: str) -> Any:
    if how == "sum" and is_dataclass(known[0]):
        return merge_all_records(known)
    return reduce(lambda a, b: _merge_two(a, b, how), known)


def _all_counts(known: Sequence[Mapping[Any, Any]]) -> Mapping[Any, Any]:
    """Counts, or histograms, added up by key."""
    filled = [c for c in known if c]
    if len(filled) < 2:
        return filled[0] if filled else known[-1]
    merged = dict(filled[0])
    for other in filled[1:]:
        _add(merged, other)
    return merged


def _add(total: dict[Any, Any], counts: Mapping[Any, Any]) -> dict[Any, Any]:
    """Add counts, or histograms, to a total."""
    for key, value in counts.items():
        known = total.get(key)
        total[key] = value if known is None else known + value if type(value) is int else known.merge(value)
    return total


def _merge_two(a: Any, b: Any, how: str) -> Any:
    """Two values of one field that is neither number, histogram nor counts; the later one is b."""
    if how == "max":
        return max(a, b)
    return merge_records(a, b) if is_dataclass(b) else a + b


_ALL: Mapping[str, Callable[[list[Any]], Any]] = {
    "last": itemgetter(-1),
    "max": max,
    "number": sum,
    "histogram": Histogram.merge_all,
    "counts": _all_counts,
}
