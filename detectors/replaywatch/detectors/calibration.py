"""Costs that the counterfactual takes out of, or puts into, a traced step; each with its measurement.

Measured on H200 hosts (tests/data/corpus/profiler_cost.json and the `fit` half of the corpus; docs/estimate.md). Units:
nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replaywatch.contract.window import TraceMethod


@dataclass(frozen=True, slots=True)
class TracerCost:
    """What a tracer adds to the host time of the traced process, by kind of recorded event, and to graph nodes.

    The costs hold on a host of the reference speed and grow with the host's slowness. `node_ns` is device time added to
    each kernel that runs from a graph while kernels are traced. `doubt` is the relative error of the step time that is
    left when the cost is taken out.
    """

    cpu_op_ns: float
    python_call_ns: float
    runtime_call_ns: float
    node_ns: float
    doubt: float


TRACER_COSTS: Final[dict[TraceMethod, TracerCost]] = {
    "kineto": TracerCost(1100.0, 1500.0, 4900.0, 1000.0, 0.15),
    "roctracer": TracerCost(1100.0, 1500.0, 4900.0, 500.0, 0.25),
    "nsys": TracerCost(0.0, 0.0, 1500.0, 500.0, 0.15),
    "cupti": TracerCost(0.0, 0.0, 0.0, 100.0, 0.08),
}
# A tracer that records every host event takes no more than this share of the traced step.
MOST_TRACER_SHARE: Final = 0.55
# Mean length of a recorded launch call on the reference host; a slower host shows longer ones.
REFERENCE_LAUNCH_NS: Final = 5300.0
FIXED_LAUNCH_NS: Final = 2200.0
SLOWNESS_RANGE: Final = (0.8, 3.0)

# Device idle between two dependent kernels inside a graph, and between two eager kernels whose launches are queued.
GRAPH_GAP_NS: Final = 380.0
EAGER_QUEUED_GAP_NS: Final = 1600.0
# Kernels that follow each other at once run longer than the same kernels with pauses between them.
CLOSE_RANKS_RATIO: Final = 0.02
CLOSE_RANKS_DOUBT: Final = 0.05
# Half-width that an interval never falls below, a share of the step.
LEAST_DOUBT: Final = 0.02
# One launch on the host without a tracer.
LAUNCH_NS: Final = 5000.0
# Copies into static inputs below this share of the step bring new data, which has to come in anyway.
REMOVABLE_COPY_SHARE: Final = 0.03
# From this share on, graphs hold the step: what is left around them is not one more graph.
MOSTLY_REPLAYED: Final = 0.8
