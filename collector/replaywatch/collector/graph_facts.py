"""What the probe saw of a workload's graphs, as names and texts for the page: captures, replays, owners, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replaywatch.collector import wording
from replaywatch.collector.fleet import WorkloadView

Fact = tuple[str, str]
MOST_NAMED: Final = 6
# What `CAPTURE_OUTCOMES` are called where people read them.
_OUTCOMES: Final = {"ok": "kept", "throwaway": "thrown away"}


def graph_facts(view: WorkloadView) -> list[Fact]:
    """Facts that are known; counts since the workload was first seen, gauges as they are now."""
    total, now, memory, traced = view.lifetime.dispatch, view.recent.dispatch, view.recent.memory, view.lifetime.traced
    found: list[tuple[str, str | None]] = [
        ("graphs alive", _alive(now.live_graphs, now.unused_graphs)),
        ("nodes in them", _number(now.graph_nodes)),
        ("captures", _parts({_OUTCOMES.get(k, k): n for k, n in (total.captures or {}).items()})),
        ("instantiations", _shared(total.instantiations, total.instantiations_by_owner)),
        ("replays", _shared(total.replays, total.replays_by_owner)),
        ("updates", _parts(total.updates)),
        ("destroyed", _shared(total.destroys, total.destroys_by_owner) if total.destroys else None),
        ("failed calls", _parts(total.failed_calls)),
        ("graph memory", _shared_bytes(memory.pool_bytes, memory.by_owner)),
        ("the engine expected", _size(memory.estimated_bytes)),
        ("held by graphs never replayed", _size(memory.unused_bytes)),
    ]
    if traced is not None:
        found += [
            ("a launch on this host", _time(traced.calibrated_launch_ns)),
            ("a graph launch on this host", _time(traced.calibrated_graph_launch_ns)),
            ("between nodes of a graph", _time(traced.calibrated_graph_gap_ns)),
        ]
    found.append(("watching took", _watching(view)))
    return [(name, text) for name, text in found if text is not None]


def _alive(live: int | None, unused: int | None) -> str | None:
    if live is None:
        return None
    return f"{wording.count(live)}, {wording.count(unused)} of them never replayed" if unused else wording.count(live)


def _parts(counts: Mapping[str, int] | None) -> str | None:
    """Names with their counts, the largest first."""
    shown = sorted(((n, name) for name, n in (counts or {}).items() if n), key=lambda p: (-p[0], p[1]))
    text = ", ".join(f"{wording.count(n)} {name}" for n, name in shown[:MOST_NAMED])
    more = len(shown) - MOST_NAMED
    return (f"{text} and {more} more" if more > 0 else text) or None


def _shared(total: int | None, by_owner: Mapping[str, int] | None) -> str | None:
    """A count, and whose it is where the probe knows."""
    owners = _parts(by_owner)
    return owners or _number(total)


def _shared_bytes(total: int | None, by_owner: Mapping[str, int] | None) -> str | None:
    if total is None:
        return None
    shown = sorted(((n, name) for name, n in (by_owner or {}).items() if n), key=lambda p: (-p[0], p[1]))
    parts = ", ".join(f"{name} {wording.size_bytes(n)}" for n, name in shown[:MOST_NAMED])
    return wording.size_bytes(total) + (f": {parts}" if len(shown) > 1 else "")


def _number(value: int | None) -> str | None:
    return wording.count(value) if value else None


def _size(value: int | None) -> str | None:
    return wording.size_bytes(value) if value else None


def _time(ns: int | None) -> str | None:
    if not ns:
        return None
    return f"{ns / 1000:.1f}{wording.GAP}µs" if ns < 100_000 else wording.duration_us(ns / 1000)


def _watching(view: WorkloadView) -> str | None:
    """The probe's own account of late: host time of its hooks and processor time of its thread."""
    cost, length_ns = view.recent.cost, view.recent.end_ns - view.recent.start_ns
    if cost is None or length_ns <= 0 or not cost.hook_calls + cost.helper_cpu_ns:
        return None
    return f"{(cost.hook_ns + cost.helper_cpu_ns) / length_ns * 100:.2f}{wording.GAP}% of the time"
