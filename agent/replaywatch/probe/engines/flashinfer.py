"""FlashInfer's planning, timed: `plan` of an attention wrapper runs on the host before every step, graphs or not.

It cannot be captured and copies index arrays to the host, so a step that is one graph still waits for it. Schedulers
that work one batch ahead hide it; whether it costs anything shows in the gap between replays, not in this time.

Source: `flashinfer/{decode,prefill,pod,cascade,sparse,mla}.py` of flashinfer-python 0.7.4.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from replaywatch.probe.engines.port import EngineAdapter
from replaywatch.probe.patching import Function, Switch

MODULES = ("flashinfer.decode", "flashinfer.prefill", "flashinfer.pod", "flashinfer.cascade", "flashinfer.sparse")


class FlashInferAdapter(EngineAdapter):
    """Times every `plan` of the wrapper classes; counts no steps and knows no configuration."""

    name = "flashinfer"

    def watched(self) -> dict[str, Callable[[ModuleType], None]]:
        """See the base."""
        return dict.fromkeys(MODULES, self._hook)

    def _hook(self, module: ModuleType) -> None:
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and kind.__module__ == module.__name__ and callable(vars(kind).get("plan")):
                self.patches.wrap(kind, "plan", "flashinfer planning", self._plan)

    def _plan(self, original: Function, on: Switch) -> Function:
        clock = self.port.clock

        def plan(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            begin_ns = perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self.guarded("flashinfer planning", on, clock.plans.add, perf_counter_ns() - begin_ns)

        return plan
