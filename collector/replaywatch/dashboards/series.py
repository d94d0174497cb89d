"""Expressions that several dashboards use."""

from __future__ import annotations

from typing import Final

from replaywatch.dashboards.board import CHOSEN

RATE: Final = "$__rate_interval"
BUSY: Final = ((None, "green"), (0.05, "blue"), (0.10, "orange"), (0.15, "red"))
LOST_STEPS: Final = BUSY
SHARE_OF_REPLAYS: Final = ((None, "red"), (0.5, "orange"), (0.95, "green"))


def of(metric: str, *matchers: str) -> str:
    """A series of the chosen workloads."""
    return f"{metric}{{{', '.join((CHOSEN, *matchers))}}}"


def rate(metric: str, *matchers: str) -> str:
    """The rate of a counter of the chosen workloads."""
    return f"rate({of(metric, *matchers)}[{RATE}])"


def total(by: str, expr: str) -> str:
    """A sum by labels."""
    return f"sum by ({by}) ({expr})"


def ratio(by: str, part: str, whole: str) -> str:
    """A quotient of sums by labels; absent where the whole is zero, zero where only the part is absent."""
    wholes = f"sum by ({by}) ({whole})"
    return f"((sum by ({by}) ({part})) or ({wholes} * 0)) / ({wholes} > 0)"


def quantile(q: float, metric: str, by: str = "") -> str:
    """A quantile of a histogram of the chosen workloads."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q:g}, sum by ({labels}) ({rate(f'{metric}_bucket')}))"
