"""What one engine's metrics say of one workload, and step times from the time between tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import BlindSpot, Timing, Window
from replaywatch.sources.engine_metrics.buckets import rescaled, to_histogram
from replaywatch.sources.engine_metrics.exposition import Sample


def rank_of(label: str) -> int | None:
    """A replica's number; None for a label that is none."""
    return int(label) if label.isdecimal() and len(label) < 10 else None


@dataclass(frozen=True, slots=True)
class Part:
    """A window with the snapshots that belong to it."""

    window: Window
    config: EngineConfig
    fingerprint: Fingerprint


def step_timing(
    samples: Iterable[Sample], names: Iterable[str], steps: int | None
) -> tuple[Timing, tuple[BlindSpot, ...]]:
    """Step periods from the first of some families of seconds between tokens, and how far to trust them.

    Each request sees its own gap, so a step counts once for each running sequence; where the number of steps is known
    the histogram is scaled to it, which keeps its shape and mean.

    Error: see `to_histogram`; the blind spot says the factor.
    """
    listed = list(samples)
    for name in names:
        converted = to_histogram(listed, name, 1e9)
        if converted is None:
            continue
        histogram, error = converted
        if steps:
            histogram = rescaled(histogram, min(steps, histogram.count))
        bound = "without limit" if math.isinf(error) else f"by up to {error:.1f} times"
        reason = (
            f"step times are gaps between tokens ({name}), weighted by running sequences; the mean is exact, single "
            f"values can be wrong {bound} because of the buckets' width"
        )
        return Timing(step_period=histogram), (BlindSpot("step_period", reason),)
    return Timing(), ()
