"""A window's answer as records of the contract."""

from __future__ import annotations

from typing import Any

from replaywatch.contract.window import Timing, TracedWork
from replaywatch.contract.wire import decode_record


def traced(found: Any) -> TracedWork:
    record = decode_record(TracedWork, found["traced"])
    assert isinstance(record, TracedWork)
    return record


def timing(found: Any) -> Timing:
    record = decode_record(Timing, found["timing"])
    assert isinstance(record, Timing)
    return record
