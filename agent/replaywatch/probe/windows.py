"""Puts a window together from what the ledgers counted, in the wire form (`replaywatch.contract.wire`).

Plain dictionaries: the contract's dataclasses would cost the serving process 11 ms of import. A test decodes frames
with the contract and compares them field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIRE_VERSION = 1


def frame(
    key: str,
    sent_ns: int,
    window: dict[str, Any],
    fingerprints: Mapping[str, Any] | None = None,
    configs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One frame with one window, and the snapshots that it is the first to point to."""
    body: dict[str, Any] = {"v": WIRE_VERSION, "key": key, "sent_ns": sent_ns, "windows": [window]}
    if fingerprints:
        body["fingerprints"] = dict(fingerprints)
    if configs:
        body["configs"] = dict(configs)
    return body


def window(
    workload: dict[str, Any],
    start_ns: int,
    end_ns: int,
    dispatch: dict[str, Any],
    timing: dict[str, Any] | None = None,
    **parts: Any,
) -> dict[str, Any]:
    """A window; empty parts are left out. Shape: `parts` are the other fields of the contract's Window."""
    body: dict[str, Any] = {"workload": workload, "start_ns": start_ns, "end_ns": end_ns, "origin": "probe"}
    if dispatch:
        body["dispatch"] = dispatch
    if timing:
        body["timing"] = timing
    body.update({name: value for name, value in parts.items() if value})
    return body


def merge_traced(results: list[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Several traced stretches as one: fields of TracedWork summed, histograms added."""
    traced: dict[str, Any] = {}
    timing: dict[str, Any] = {}
    for result in results:
        _add(traced, result.get("traced") or {})
        _add_histograms(timing, result.get("timing") or {})
    return traced, timing


def merge_dispatch(first: dict[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two parts of one Dispatch, which count different things or add up."""
    merged = dict(first)
    _add(merged, second)
    return merged


def add_traced_timing(timing: dict[str, Any], traced: dict[str, Any]) -> None:
    """The tracer's histograms beside those of the hooks.

    Step periods that the hooks saw already are not counted twice. The tracer's gaps are idle time, those between two
    timed replays an upper bound of it: where there are both, only the tracer's are told.
    """
    if "step_period" in timing:
        traced.pop("step_period", None)
    if "replay_gap" in traced:
        timing.pop("replay_gap", None)
    _add_histograms(timing, traced)


def add_histograms(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Histograms of Timing added by field, `step_by_mode` by mode."""
    _add_histograms(into, more)


def _add(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        have = into.get(name)
        if isinstance(value, Mapping):
            counts = dict(have or {})
            _add(counts, value)
            into[name] = counts
        elif have is None or isinstance(value, (bool, str)):
            into[name] = value
        else:
            into[name] = have + value


def _add_histograms(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, histogram in more.items():
        have = into.get(name)
        if have is None:
            into[name] = histogram
        elif "n" not in histogram:
            _add_histograms(have, histogram)
        else:
            merged = dict(have)
            _add(merged, histogram)
            into[name] = merged
