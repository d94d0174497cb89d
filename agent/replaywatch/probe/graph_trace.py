"""Where tracing of graphs as a whole begins: just before torch initialises CUDA, in the process that does.

Later is too late: a graph from before it ends the process with its next replay (M1). Earlier would reach parents that
only fork. torch initialises CUDA through two functions of `torch._C`, whichever front end is used; the first call of
either begins it. Where CUDA was initialised before, by torch or by something else, that is told.
"""

from __future__ import annotations

from typing import Any

from replaywatch.probe.patching import Function, PatchSet, Switch
from replaywatch.probe.sight import Sight
from replaywatch.probe.tracing import GRAPH_SIGNAL, Tracing
from replaywatch.probe.workload import cuda_ready

TOO_LATE = "graphs are not traced as a whole: the probe began after torch had initialised CUDA"
STARTS = ("_cuda_init", "_cuda_getDeviceCount")


def place(patches: PatchSet, native: Any, tracing: Tracing, sight: Sight) -> None:
    """Wrap the functions of `torch._C`; a blind spot says where one is absent, or where it is too late."""
    if cuda_ready():
        sight.blind(GRAPH_SIGNAL, TOO_LATE)
        return

    def before(original: Function, on: Switch) -> Function:
        def starts(*args: Any, **kwargs: Any) -> Any:
            if on:
                _begin(tracing, sight, on)
            return original(*args, **kwargs)

        return starts

    for name in STARTS:
        patches.wrap(native, name, GRAPH_SIGNAL, before)


def _begin(tracing: Tracing, sight: Sight, on: Switch) -> None:
    try:
        tracing.begin_graph_trace()
    except Exception as error:  # the probe's border
        on.off()
        sight.fault(GRAPH_SIGNAL, error)
