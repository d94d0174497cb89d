"""What eager steps cost, from replayed ones that the same process ran before, with the same batches."""

from __future__ import annotations

from typing import Final

from replaywatch.contract.histogram import Histogram
from replaywatch.contract.verdict import Estimate
from replaywatch.contract.window import Dispatch
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.figures import mean_size, usual_step_of

# How an estimate was made that compares steps of one process.
BOTH_WAYS: Final = "replayed against eager steps"
MIN_STEPS: Final = 50
# Mean batches of both kinds of steps lie this near to each other; the same doubt is in the interval.
SAME_LOAD: Final = 1.33
DOUBT: Final = 0.15


def estimate_by_own_steps(evidence: Evidence) -> Estimate | None:
    """The recoverable share of recent eager steps; None where either kind was not run often enough or alike.

    Bad at: batches that say nothing of the work, as contexts grow.
    """
    eager_us = _usual_us((evidence.recent.timing.step_by_mode or {}).get("eager"))
    full_us = _usual_us((evidence.lifetime.timing.step_by_mode or {}).get("full"))
    if eager_us is None or full_us is None or evidence.workload.phase not in (None, "decode"):
        return None
    eager, full = mean_size(evidence.recent.dispatch.batch_sizes), mean_size(_replayed(evidence.lifetime.dispatch))
    if eager is None or full is None or not 1 / SAME_LOAD <= eager / full <= SAME_LOAD:
        return None

    def ratio(more: float) -> float:
        return min(1.0, max(0.0, 1.0 - full_us * more / eager_us))

    return Estimate(
        ratio(1.0), ratio(1.0 + DOUBT), ratio(1.0 - DOUBT), step_us=eager_us, graph_step_us=full_us, method=BOTH_WAYS
    )


def _usual_us(steps: Histogram | None) -> float | None:
    return usual_step_of(steps)[0] if steps is not None and steps.count >= MIN_STEPS else None


def _replayed(dispatch: Dispatch) -> dict[int, int]:
    eager = dispatch.eager_batch_sizes or {}
    left = {size: n - eager.get(size, 0) for size, n in (dispatch.batch_sizes or {}).items()}
    return {size: n for size, n in left.items() if n > 0}
