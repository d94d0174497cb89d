"""Costs that the counterfactual takes out of, or puts into, a traced step; each with its measurement.

The defaults were measured on one H200 host (see docs/estimate.md); a window that carries its own host's calibration
overrides them. Units: nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replaywatch.contract.window import TraceMethod


@dataclass(frozen=True, slots=True)
class TracerCost:
    """What a tracer adds to the host time of the traced process, by kind of recorded event, and to graph nodes.

    `node_ns` is device time added to each kernel that runs from a graph while kernels are traced. `uncertainty` is the
    relative error of the whole, used for the interval.
    """

    cpu_op_ns: float
    python_call_ns: float
    runtime_call_ns: float
    node_ns: float
    uncertainty: float


TRACER_COSTS: Final[dict[TraceMethod, TracerCost]] = {
    "kineto": TracerCost(
        cpu_op_ns=1250.0, python_call_ns=450.0, runtime_call_ns=4000.0, node_ns=600.0, uncertainty=0.4
    ),
    "roctracer": TracerCost(
        cpu_op_ns=1250.0, python_call_ns=450.0, runtime_call_ns=3000.0, node_ns=300.0, uncertainty=0.6
    ),
    "nsys": TracerCost(cpu_op_ns=0.0, python_call_ns=0.0, runtime_call_ns=1500.0, node_ns=300.0, uncertainty=0.6),
    "cupti": TracerCost(cpu_op_ns=0.0, python_call_ns=0.0, runtime_call_ns=0.0, node_ns=100.0, uncertainty=0.5),
}

# Device idle between two dependent kernels inside a graph (M13), and between two eager kernels whose launches are
# already queued.
GRAPH_GAP_NS: Final = 420.0
EAGER_QUEUED_GAP_NS: Final = 1000.0
# One graph launch on the host.
GRAPH_LAUNCH_NS: Final = 6000.0
