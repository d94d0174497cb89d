"""FlashInfer's planning, timed: attention is planned on the host before every step, graphs or not.

It cannot be captured and copies index arrays to the host, so a step that is one graph still waits for it. Schedulers
that work one batch ahead hide it; whether it costs anything shows in the gap between replays, not in this time.

Engines have planners of their own beside `plan`, also called `begin_forward`: vLLM's `fast_plan_decode` (from 0.10.1),
and those of SGLang, which asks by identity which one a wrapper has. So a planner that SGLang holds is left alone, and
its `call_begin_forward` is timed, which also prepares the index arrays. Of nested planners the outermost counts. Before
the first step engines plan for warm-up and captures, and may compile kernels meanwhile: that is not counted.

Source: `flashinfer/` of flashinfer-python 0.7.4, `v1/attention/backends/flashinfer.py` of vLLM 0.9.2 to 0.33,
`srt/layers/attention/flashinfer*_backend.py` of SGLang 0.5.9 to 0.5.23.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from types import FunctionType, ModuleType
from typing import Any, ClassVar

from replaywatch.probe.engines.port import EngineAdapter, Port
from replaywatch.probe.patching import Function, Switch

SIGNAL = "flashinfer planning"
# Where at least one planner must be, and where there may be none.
PLANNING = (
    "flashinfer.decode", "flashinfer.prefill", "flashinfer.mla",
    "sglang.srt.layers.attention.flashinfer_backend", "sglang.srt.layers.attention.flashinfer_mla_backend",
)  # fmt: skip
MODULES = (
    *PLANNING, "flashinfer.attention", "flashinfer.cascade", "flashinfer.pod", "flashinfer.sparse",
    "vllm.v1.attention.backends.flashinfer",
)  # fmt: skip
METHODS = ("plan", "begin_forward", "call_begin_forward")
FUNCTIONS = ("fast_decode_plan", "fast_plan_decode")


class _Here(threading.local):
    planning = False


class FlashInferAdapter(EngineAdapter):
    """Times every planning of a step; counts no steps and knows no configuration."""

    name = "flashinfer"
    brings: ClassVar[Mapping[str, tuple[str, str]]] = {"flashinfer": (SIGNAL, "flashinfer.decode")}

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._here = _Here()

    def watched(self) -> dict[str, Callable[[ModuleType], None]]:
        """See the base."""
        return dict.fromkeys(MODULES, self._hook)

    def _hook(self, module: ModuleType) -> None:
        found = list(_planners(module))
        for owner, name in found:
            self.patches.wrap(owner, name, SIGNAL, self._timed)
        if not found and module.__name__ in PLANNING:
            self.port.sight.blind(SIGNAL, f"{module.__name__} plans under other names in this version")

    def _timed(self, original: Function, on: Switch) -> Function:
        port, here = self.port, self._here

        def plan(*args: Any, **kwargs: Any) -> Any:
            if not on or here.planning or not port.works():
                return original(*args, **kwargs)
            here.planning = True
            begin_ns = perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                here.planning = False
                self.guarded(SIGNAL, on, port.clock.plans.add, perf_counter_ns() - begin_ns)

        return plan


def _planners(module: ModuleType) -> Iterator[tuple[Any, str]]:
    """Owner and name of each planner that a module or a part of it defines; names that it only imported are left."""
    for name in FUNCTIONS:
        found = vars(module).get(name)
        if isinstance(found, FunctionType) and found.__module__ == module.__name__:
            yield module, name
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and f"{kind.__module__}.".startswith(f"{module.__name__}."):
            for name in METHODS:
                if isinstance(vars(kind).get(name), FunctionType):
                    yield kind, name
