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
    each kernel that runs from a graph while kernels are traced, `launch_ns` host time added to each launch by hand
    where calls are not recorded. `doubt` is the relative error of the step time that is left without the cost.
    """

    cpu_op_ns: float
    python_call_ns: float
    runtime_call_ns: float
    node_ns: float
    doubt: float
    launch_ns: float = 0.0


TRACER_COSTS: Final[dict[TraceMethod, TracerCost]] = {
    # A tenth above what the profiler's modes cost one decoder, from the eager steps of the `fit` half.
    "kineto": TracerCost(1200.0, 1650.0, 5400.0, 1000.0, 0.18),
    "roctracer": TracerCost(1200.0, 1650.0, 5400.0, 500.0, 0.25),
    "nsys": TracerCost(0.0, 0.0, 1500.0, 500.0, 0.15),
    # M3: eager steps of 904 launches and 10 to 18 ms take 4 to 8 % longer inside a window.
    "cupti": TracerCost(0.0, 0.0, 0.0, 100.0, 0.08, launch_ns=900.0),
}
# A tracer that records every host event takes no more than this share of the traced step.
MOST_TRACER_SHARE: Final = 0.55
# Mean length of a recorded launch call on the reference host; a slower host shows longer ones.
REFERENCE_LAUNCH_NS: Final = 5300.0
FIXED_LAUNCH_NS: Final = 2200.0
SLOWNESS_RANGE: Final = (0.8, 3.0)

# Device idle between two dependent kernels inside a graph, and between two eager kernels whose launches are queued.
GRAPH_GAP_NS: Final = 300.0
EAGER_QUEUED_GAP_NS: Final = 1600.0
# Kernels that follow each other at once run longer than the same kernels with pauses between them.
CLOSE_RANKS_RATIO: Final = 0.01
CLOSE_RANKS_DOUBT: Final = 0.05
# Half-width that an interval never falls below, a share of the step.
LEAST_DOUBT: Final = 0.02
# Steps that the probe timed take the traced ones' place from this many times their number on, since they are hardly
# touched by the tracer then, and where one is this long beside a traced one; their mean is never surer than this.
TIMED_STEPS_RATIO: Final = 4
SAME_STEP_RANGE: Final = (0.75, 1.1)
LEAST_TIMED_DOUBT: Final = 0.01
# Relative doubt of the device's part of the graph when the step itself was timed; without that it is in both.
TIMED_DEVICE_DOUBT: Final = 0.03
# One launch on the host without a tracer.
LAUNCH_NS: Final = 5000.0
# Copies into static inputs below this share of the step bring new data, which has to come in anyway.
REMOVABLE_COPY_SHARE: Final = 0.03
# From this share on, graphs hold the step: what is left around them is not one more graph.
MOSTLY_REPLAYED: Final = 0.8

# Half-width of the likely share by reading (docs/estimate.md, "Without a trace"), where a trace speaks too.
READING_DOUBT: Final = 0.1
