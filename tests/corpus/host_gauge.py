"""How fast this host is right now: the same small work on the CPU, timed again and again.

A virtual machine's host can be twice as slow for seconds at a time. Truth and trace only belong together when the host
was in the same state for both, so truth is taken in rounds between two gauges, only rounds of the trace's state count,
and the trace waits for the state that the rounds were in.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

STEADY_RATIO = 1.12
"""Gauges that differ by more are different states of the host, decided before any scoring."""


def gauge_us(repetitions: int = 5, calls: int = 300) -> float:
    """Median microseconds of one call of interpreter and dispatcher work that touches no device."""
    small = torch.ones(4)
    times: list[float] = []
    for _ in range(repetitions):
        begin_ns = time.perf_counter_ns()
        for _ in range(calls):
            torch.add(small, small)
        times.append((time.perf_counter_ns() - begin_ns) / calls / 1e3)
    return statistics.median(times)


def is_same_state(*gauges_us: float) -> bool:
    """Whether all gauges were taken in one state of the host."""
    return max(gauges_us) <= STEADY_RATIO * min(gauges_us)


def commonest_state(gauges_us: list[float]) -> float:
    """The gauge that most of the others agree with."""
    return max(gauges_us, key=lambda g: sum(is_same_state(g, other) for other in gauges_us))


def wait_for_state(wanted_us: float, seconds: float, gauge: Callable[[], float] = gauge_us) -> float:
    """The gauge once it is in a wanted state, or the last one when the time is over."""
    end_s = time.monotonic() + seconds
    while True:
        now_us = gauge()
        if is_same_state(now_us, wanted_us) or time.monotonic() > end_s:
            return now_us
        time.sleep(0.05)
