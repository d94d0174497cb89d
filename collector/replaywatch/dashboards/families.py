"""Which family each detector belongs to: what people silence, route and count together."""

from __future__ import annotations

from typing import Final

FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "off": ("disabled", "downgrade", "compile_mode", "environment_switches", "skipped"),
    "coverage": ("partial_coverage", "overflow", "fallbacks", "exact_sizes", "low_load", "dropped_sizes"),
    "replay": ("replay_gap", "copy_bound", "harmful", "padding", "fragmented", "host_planning", "slow_launch"),
    "capture": (
        "thrash",
        "capture_failed",
        "unused_graphs",
        "slow_capture",
        "graph_memory_estimate",
        "graph_memory_growth",
        "unamortised",
        "idle_pools",
    ),
    "faults": ("failing_calls", "replay_stuck", "stale_environment"),
    "device": ("contention", "slow_device"),
    "peers": ("odd_one_out",),
    "sudden": ("sudden",),
    "sight": ("contradiction",),
}
OTHER: Final = "other"
# Detectors whose findings have no severity above info; a test reads that off their code.
INFORMING: Final = frozenset(
    {
        "downgrade",
        "compile_mode",
        "environment_switches",
        "exact_sizes",
        "low_load",
        "dropped_sizes",
        "slow_capture",
        "graph_memory_estimate",
        "unamortised",
        "slow_device",
        "contradiction",
    }
)
WORDS: Final = {
    "off": "graphs are not used",
    "coverage": "graphs hold a part of the work only",
    "replay": "graphs are used and something still costs time",
    "capture": "capturing graphs goes wrong, or costs too much",
    "faults": "calls on graphs fail, or graphs no longer fit what they run on",
    "device": "the device itself is slower than it should be",
    "peers": "a replica differs from its like",
    "sudden": "something got worse from one moment to the next",
    "sight": "what is seen contradicts itself",
    OTHER: "not sorted into a family yet",
}


def family_of(detector: str) -> str:
    """The family of a detector; OTHER for one that no family names."""
    return next((family for family, detectors in FAMILIES.items() if detector in detectors), OTHER)
