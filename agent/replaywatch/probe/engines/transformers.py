"""The transformers adapter: `generate` step by step, and continuous batching.

`generate` without a static cache launches every kernel of every token from the host; with one it compiles its decode
step with graphs, whose calls the Inductor hooks count. So eager steps are counted here, and replays of graphs that the
caller captured; compiled steps are left to those hooks, in continuous batching too. A `generate` of another model
inside a `generate` is the assistant of assisted decoding, a component of its own.

Source: `generation/utils.py` of transformers 5.24.0; `generation/continuous_batching/` of 4.57.1 and 5.0 to 5.24, whose
step is a method of the manager in 4.57 and of the batch processor since; warm-up runs go around it, or make no step.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

from replaywatch.probe.engines.model_size import model_size
from replaywatch.probe.engines.port import EngineAdapter, Port
from replaywatch.probe.patching import Function, Switch

GENERATION = "transformers.generation.utils"
BATCHING = "transformers.generation.continuous_batching.continuous_api"
# How the cache of earlier steps is handed over; to 5.8 the first.
CACHES = ("past_key_values", "cache")
KEY_DIMENSIONS = 4  # sequences, heads, tokens, width
STEPPERS = ("ContinuousBatchProcessor", "ContinuousBatchingManager")


class _Call:
    """A call of generate. `component` is None for the main model."""

    __slots__ = ("cache", "compiled", "component", "model", "prefill")

    def __init__(self, model: Any = None, component: str | None = None, prefill: bool = True) -> None:
        self.model, self.component, self.prefill = model, component, prefill
        self.compiled = False
        self.cache: str | None = None


class _Here(threading.local):
    """One thread's innermost call of generate, and its replays so far."""

    def __init__(self) -> None:
        self.call = _Call()
        self.replays = 0


class TransformersAdapter(EngineAdapter):
    """Counts decode steps of `generate` by the device's work. `devices` are the kinds that count."""

    name = "transformers"
    brings: ClassVar[Mapping[str, tuple[str, str]]] = {
        "transformers.generation.continuous_batching": ("transformers continuous batching", BATCHING)
    }

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
        for kind in (getattr(module, name, None) for name in STEPPERS):
            if isinstance(kind, type) and "_generation_step" in vars(kind):
                self.patches.wrap(kind, "_generation_step", "transformers continuous batching", self._generation_step)
                return
        self.port.sight.blind("transformers continuous batching", f"{BATCHING} has no _generation_step in this version")

    def _generate(self, original: Function, on: Switch) -> Function:
        here = self._here

        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(model, *args, **kwargs)
            outer = here.call
            assists = outer.model is not None and outer.model is not model
            goes_on = assists and any(kwargs.get(name) is not None for name in CACHES)
            here.call = _Call(model, "draft" if assists else outer.component, not goes_on)
            try:
                return original(model, *args, **kwargs)
            finally:
                here.call = outer

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
        cache = next((found for name in CACHES if (found := model_kwargs.get(name)) is not None), None)
        call = self._here.call
        call.compiled = compiled
        call.cache = type(cache).__name__ if cache is not None else None
        if call.component is not None:
            return
        asked = getattr(given, "cache_implementation", None)
        mode = getattr(getattr(given, "compile_config", None), "mode", None) or "reduce-overhead"
        self.know(
            engine="transformers",
            requested_mode=f"cache_implementation={asked}" if asked else None,
            graphs_enabled=compiled,
            resolved_mode=mode if compiled else "NONE",
            enforced_by="disable_compile=True" if getattr(given, "disable_compile", False) else None,
            settings={"cache": call.cache or "none"},
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
        here, call, replays = self._here, self._here.call, self.port.replays_here()
        replayed, here.replays = replays != here.replays, replays
        batch, compiled = int(logits.shape[0]), call.compiled or _is_compiled(model)
        if call.prefill:
            call.prefill = False
            self.port.step("eager", batch, None, None, "prefill_by_design", "prefill", call.component)
        elif not compiled and replayed:
            self.port.step("full", batch, batch, batch, None, "decode", call.component)
            self._tell_context(outputs, batch, call)
        elif not compiled:
            why = "dynamic_shape" if call.cache in (None, "DynamicCache") else "forced_eager"
            self.port.step("eager", batch, batch, batch, why, "decode", call.component)
            self._tell_context(outputs, batch, call)

    def _tell_context(self, outputs: Any, batch: int, call: _Call) -> None:
        if call.component is None:
            self.note_context(_context_of, outputs, batch)

    def _generation_step(self, original: Function, on: Switch) -> Function:
        """Around `_generation_step(self, ...)` of continuous batching; a manager's is given the batch processor."""

        def _generation_step(owner: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.port.replays_here()
            result = original(owner, *args, **kwargs)
            if on:
                batches = args[0] if args and hasattr(args[0], "requests_in_batch") else owner
                self.guarded("transformers continuous batching", on, self._count_batch, owner, batches, before)
            return result

        return _generation_step

    def _count_batch(self, owner: Any, batches: Any, before: int) -> None:
        runner = getattr(owner, "model_runner", owner)
        inputs = getattr(batches, "inputs_and_outputs", batches)
        table = bool(getattr(inputs, "use_block_table", False))
        requests, decode = _requests(inputs, table)
        phase = "decode" if decode else "mixed"
        asked = _wants_graphs(runner)
        if self.port.replays_here() != before:
            self.port.step("full", requests, None, None, None, phase)
        elif not asked[table] and not _compiles(runner, table):
            self.port.step("eager", requests, None, None, "mode_none" if decode else "prefill_by_design", phase)
        self.know(
            engine="transformers", graphs_enabled=any(asked), resolved_mode="FULL" if any(asked) else "NONE",
            settings={"use_cuda_graph": f"varlen {asked[0]}, decode {asked[1]}"},
        )  # fmt: skip


def _requests(inputs: Any, table: bool) -> tuple[int | None, bool]:
    """Requests of a batch, where they are known, and whether each has one token: a step of decode."""
    given = getattr(inputs, "requests_in_batch", None)
    requests = len(given) if given else None
    names = ("num_q_tokens", "actual_query_length", "total_query_length")
    tokens = next((n for name in names if (n := getattr(inputs, name, None)) is not None), None)
    return requests, table or (requests is not None and tokens == requests)


def _context_of(outputs: Any, batch: int) -> tuple[int, int] | None:
    """Tokens of context that a layer reads for all sequences, the mean over layers: from the shapes of their keys.

    Layers are objects since 4.54, lists of tensors before. A static cache is read whole, a sliding one in its window.
    """
    cache = next((found for name in CACHES if (found := getattr(outputs, name, None)) is not None), None)
    layers = getattr(cache, "layers", None)
    keys: list[Any] = [getattr(x, "keys", None) for x in layers] if layers else getattr(cache, "key_cache", None) or []
    lengths = [int(k.shape[-2]) for k in keys if len(getattr(k, "shape", ())) == KEY_DIMENSIONS]
    return (round(sum(lengths) / len(lengths)) * batch, batch) if lengths else None


def _wants_graphs(runner: Any) -> tuple[bool, bool]:
    """Whether batches of any lengths, and batches of the decode path (from 5.8), are to be graphs."""
    both = getattr(runner, "use_cuda_graph", False) or getattr(runner, "_graphs", None) is not None
    varlen, decode = (getattr(runner, f"use_cuda_graph_{path}", both) for path in ("varlen", "decode"))
    return bool(varlen), bool(decode)


def _compiles(runner: Any, table: bool) -> bool:
    """Whether the step is a compiled function, which Inductor's hooks count."""
    if getattr(runner, "_forward_process_and_sample_is_compiled", False):
        return True
    return getattr(runner, "_compiled_decode" if table else "_compiled_varlen", None) is not None


def _is_compiled(model: Any) -> bool:
    """Whether the caller compiled the model or its forward."""
    forward = getattr(model, "forward", None)
    return hasattr(model, "_orig_mod") or hasattr(forward, "_torchdynamo_orig_callable")
