"""How fast this host is right now: the same small work on the CPU, timed again and again.

A virtual machine's host can be twice as slow for tens of seconds. Truth and trace only belong together when the host
was in the same state for both, so each recording carries gauges from before and behind its parts.
"""

from __future__ import annotations

import statistics
import time

import torch

STEADY_RATIO = 1.15
"""Gauges of one recording that differ by more make it unsteady, decided before any scoring."""


def gauge_us(repetitions: int = 7, calls: int = 400) -> float:
    """Median microseconds of one call of interpreter and dispatcher work that touches no device."""
    small = torch.ones(4)
    times: list[float] = []
    for _ in range(repetitions):
        begin_ns = time.perf_counter_ns()
        for _ in range(calls):
            torch.add(small, small)
        times.append((time.perf_counter_ns() - begin_ns) / calls / 1e3)
    return statistics.median(times)


def is_steady(gauges_us: list[float]) -> bool:
    """Whether the host kept its speed over a recording."""
    return max(gauges_us) <= STEADY_RATIO * min(gauges_us)
