"""`record`: `dataclass(frozen=True, slots=True)` for the type checker, made as fast as one that is not frozen.

Making a frozen dataclass takes twice as long as making another, since each field is set past the class's own lock. For
values that are made dozens of times for every window that was a ninth of all that judging takes, measured with
tests/bench/bench_judge.py. The type checker, which every change has to pass, refuses to change a record all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, slots: bool, kw_only: bool = False):
        """A class decorator: equality and hash by value. `frozen` is what the type checker is told."""
        return dataclass(slots=slots, unsafe_hash=frozen, kw_only=kw_only)


__all__ = ["record"]
