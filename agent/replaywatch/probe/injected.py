"""Tells the tracer that the CUDA driver injects that a probe speaks for this process; else the tracer does.

The environment of `replaywatch run --inject` does not say so, since `python -I` has it too and starts no probe. A mark
in the library's own memory goes with a fork, and not with a program that is executed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress

from replaywatch.probe.launch import INJECTION
from replaywatch.probe.tracer import LIBRARY


def leave_it_to_the_probe(environment: Mapping[str, str] = os.environ) -> None:
    """Mark the library that will be injected, where it is this tracer; costs nothing else. Never raises."""
    path = environment.get(INJECTION, "")
    if os.path.basename(path) == LIBRARY:
        with suppress(OSError, AttributeError):  # no such file, or one of another release
            ctypes.CDLL(path).rw_tracer_leave_to_probe()
