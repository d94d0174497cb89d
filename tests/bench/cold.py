"""What an engine does between two steps, as far as a processor's caches go: for benchmarks of what runs in between."""

from __future__ import annotations

import ast
import inspect
import json

FLUSHED = bytearray(16 << 20)
SOURCE = inspect.getsource(json)


def something_else() -> None:
    """Much code and much memory, after which nothing of what ran before is in the caches."""
    FLUSHED[::64] = bytes(len(FLUSHED) // 64)
    ast.parse(SOURCE)
