"""The transformers adapter: `generate` step by step, and continuous batching.

`generate` without a static cache launches every kernel of every token from the host; with one it compiles its decode
step with graphs, whose calls the Inductor hooks count. So eager steps are counted here, and replays of graphs that the
caller captured; compiled steps are left to those hooks.

Source: `generation/utils.py` and `generation/continuous_batching/model_runner.py` of transformers 5.24.0.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from replaywatch.probe.engines.model_size import model_size
from replaywatch.probe.engines.port import EngineAdapter, Port
from replaywatch.probe.patching import Function, Switch

GENERATION = "transformers.generation.utils"
BATCHING = "transformers.generation.continuous_batching.model_runner"


class _Here(threading.local):
    """One thread's call of generate."""

    prefill = True
    compiled = False
    cache: str | None = None
    replays = 0


class TransformersAdapter(EngineAdapter):
    """Counts decode steps of `generate` by the device's work. `devices` are the kinds that count."""

    name = "transformers"

    def __init__(self, port: Port, devices: tuple[str, ...] = ("cuda",)) -> None:
        super().__init__(port)
        self._here = _Here()
        self._devices = devices
        self._weighed: weakref.ref[Any] | None = None

    def watched(self) -> dict[str, Callable[[ModuleType], None]]:
        """See the base."""
        return {GENERATION: self._hook_generation, BATCHING: self._hook_batching}

    def _hook_generation(self, module: ModuleType) -> None:
        kind = getattr(module, "GenerationMixin", None)
        if kind is None:
            self.port.sight.blind("transformers steps", f"{GENERATION} has no GenerationMixin in this version")
            return
        self.patches.wrap(kind, "generate", "transformers steps", self._generate)
        self.patches.wrap(kind, "_update_model_kwargs_for_generation", "transformers steps", self._after_forward)
        self.patches.wrap(kind, "_valid_auto_compile_criteria", "transformers compilation", self._criteria)

    def _hook_batching(self, module: ModuleType) -> None:
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__ and "compute_batch" in vars(kind):
                self.patches.wrap(kind, "compute_batch", "transformers continuous batching", self._compute_batch)
                return
        self.port.sight.blind("transformers continuous batching", f"{BATCHING} has no compute_batch in this version")

    def _generate(self, original: Function, on: Switch) -> Function:
        here = self._here

        def generate(*args: Any, **kwargs: Any) -> Any:
            here.prefill, here.compiled, here.cache = True, False, None
            return original(*args, **kwargs)

        return generate

    def _criteria(self, original: Function, on: Switch) -> Function:
        """Around `_valid_auto_compile_criteria`, which decides whether the decode step is compiled."""

        def _valid_auto_compile_criteria(model: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            if on:
                self.guarded("transformers compilation", on, self._decided, model, args, kwargs, bool(result))
            return result

        return _valid_auto_compile_criteria

    def _decided(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compiled: bool) -> None:
        model_kwargs = args[0] if args else kwargs.get("model_kwargs", {})
        given = args[1] if len(args) > 1 else kwargs.get("generation_config")
        cache = model_kwargs.get("cache")
        if cache is None:
            cache = model_kwargs.get("past_key_values")
        self._here.compiled = compiled
        self._here.cache = type(cache).__name__ if cache is not None else None
        asked = getattr(given, "cache_implementation", None)
        mode = getattr(getattr(given, "compile_config", None), "mode", None) or "reduce-overhead"
        self.know(
            engine="transformers",
            requested_mode=f"cache_implementation={asked}" if asked else None,
            graphs_enabled=compiled,
            resolved_mode=mode if compiled else "NONE",
            enforced_by="disable_compile=True" if getattr(given, "disable_compile", False) else None,
            settings={"cache": self._here.cache or "none"},
        )
        self.identify(model_name=type(model).__name__)
        if self._weighed is None or self._weighed() is not model:
            self._weighed = weakref.ref(model)
            self.know(**model_size(model, getattr(model, "config", None)))

    def _after_forward(self, original: Function, on: Switch) -> Function:
        """Around `_update_model_kwargs_for_generation(self, outputs, ...)`, called once after each forward."""

        def _update_model_kwargs_for_generation(model: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if on:
                self.guarded("transformers steps", on, self._count, model, outputs)
            return original(model, outputs, *args, **kwargs)

        return _update_model_kwargs_for_generation

    def _count(self, model: Any, outputs: Any) -> None:
        logits = getattr(outputs, "logits", None)
        if logits is None or logits.device.type not in self._devices:
            return
        here, replays = self._here, self.port.replays_here()
        replayed, here.replays = replays != here.replays, replays
        batch = int(logits.shape[0])
        if here.prefill:
            here.prefill = False
            self.port.step("eager", batch, None, None, "prefill_by_design", "prefill")
        elif replayed and not (here.compiled or _is_compiled(model)):
            self.port.step("full", batch, batch, batch, None, "decode")
        elif not here.compiled and not _is_compiled(model):
            why = "dynamic_shape" if here.cache in (None, "DynamicCache") else "forced_eager"
            self.port.step("eager", batch, batch, batch, why, "decode")

    def _compute_batch(self, original: Function, on: Switch) -> Function:
        """Around `compute_batch(self, model, batch_data)` of continuous batching."""

        def compute_batch(runner: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.port.replays_here()
            result = original(runner, *args, **kwargs)
            if on:
                self.guarded("transformers continuous batching", on, self._count_batch, runner, before)
            return result

        return compute_batch

    def _count_batch(self, runner: Any, before: int) -> None:
        decode = bool(getattr(getattr(runner, "inputs_and_outputs", None), "use_block_table", False))
        phase = "decode" if decode else "mixed"
        wanted = bool(getattr(runner, "use_cuda_graph_decode" if decode else "use_cuda_graph_varlen", False))
        if self.port.replays_here() != before:
            self.port.step("full", None, None, None, None, phase)
        elif not wanted:
            self.port.step("eager", None, None, None, "mode_none" if decode else "prefill_by_design", phase)
        both = (getattr(runner, "use_cuda_graph_varlen", None), getattr(runner, "use_cuda_graph_decode", None))
        self.know(
            engine="transformers", graphs_enabled=any(both), resolved_mode="FULL" if both[1] else "NONE",
            settings={"use_cuda_graph": f"varlen {both[0]}, decode {both[1]}"},
        )  # fmt: skip


def _is_compiled(model: Any) -> bool:
    """Whether the caller compiled the model or its forward."""
    forward = getattr(model, "forward", None)
    return hasattr(model, "_orig_mod") or hasattr(forward, "_torchdynamo_orig_callable")
