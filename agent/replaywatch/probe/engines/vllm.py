"""The vLLM adapter: where to hook vLLM 0.9 to 0.33, by name, each point on its own.

A point that is absent or different in some version leaves a blind spot under its own name; the others keep working.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from replaywatch.probe.engines import vllm_asked, vllm_config
from replaywatch.probe.engines.model_size import model_size
from replaywatch.probe.engines.port import EngineAdapter, Port
from replaywatch.probe.engines.vllm_reasons import Facts
from replaywatch.probe.engines.vllm_steps import StepHooks
from replaywatch.probe.patching import Function, Switch, loaded, reaches

RUNNER_V1 = "vllm.v1.worker.gpu_model_runner"
RUNNER_V2 = "vllm.v1.worker.gpu.model_runner"
DISPATCHER = "vllm.v1.cudagraph_dispatcher"
DP_UTILS = "vllm.v1.worker.gpu.dp_utils"
WORKER = "vllm.v1.worker.gpu_worker"
ARGUMENTS = "vllm.engine.arg_utils"
COMPILATION = "vllm.config.compilation"
MAX_ENGINES = 16
_V2_FUNCTION = "dispatch_cg_and_sync_dp"  # from 0.20 on
_V2_AGREEMENT = "sync_cudagraph_and_dp_padding"
_RESOLVE = "resolve_cudagraph_mode_and_sizes"
# Where the first runner settles on a mode: from 0.11.1 on, and 0.10.1 to 0.11.0.
_V1_RESOLVING = ("_check_and_update_cudagraph_mode", "initialize_cudagraph_capture")


class VllmAdapter(EngineAdapter):
    """Hooks both model runners, the dispatchers, the worker's life and the resolution of the configuration."""

    name = "vllm"

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self.steps = StepHooks(self, self.facts_of, self.meet)
        self._heard: list[str] = []
        self._facts: dict[int, tuple[object, Facts]] = {}

    def watched(self) -> dict[str, Callable[[ModuleType], None]]:
        """See the base."""
        return {
            ARGUMENTS: self._hook_arguments,
            COMPILATION: self._hook_compilation,
            DISPATCHER: self._hook_dispatcher,
            DP_UTILS: self._hook_dp_utils,
            RUNNER_V1: self._hook_runner_v1,
            RUNNER_V2: self._hook_runner_v2,
            WORKER: self._hook_worker,
        }

    def facts_of(self, thing: Any) -> Facts:
        """What is known of a dispatcher, graph manager or runner, kept until its mode changes."""
        mode = getattr(thing, "cudagraph_mode", None)
        kept = self._facts.get(id(thing))
        if kept is None or kept[0] is not mode:
            config = getattr(thing, "vllm_config", None)
            heard = [*self._heard, *vllm_asked.recall(config).get("heard", ())]
            if len(self._facts) >= MAX_ENGINES:
                self._facts.clear()
            kept = self._facts[id(thing)] = (mode, vllm_config.facts(config, heard, vllm_config.mode_name(mode)))
        facts = kept[1]
        ready = getattr(thing, "keys_initialized", getattr(thing, "_graphs_captured", True))
        facts.ready = bool(ready) or facts.mode == "NONE"
        return facts

    def learn(self, config: Any) -> None:
        """Take over an engine's configuration as it is now."""
        asked = vllm_asked.recall(config)
        heard = list(dict.fromkeys([*asked.get("heard", ()), *self._heard]))
        self.know(**vllm_config.config_fields(config, asked, heard))
        self.identify(**vllm_config.workload_fields(config))
        self._facts.clear()

    def meet(self, runner: Any) -> None:
        """Learn from a runner what nobody told: the probe began after the engine was made."""
        if "resolved_mode" not in self._config:
            self.learn(getattr(runner, "vllm_config", None))
        if "weight_bytes" not in self._config:
            self._weigh(runner)

    def _hook_arguments(self, module: ModuleType) -> None:
        kind = getattr(module, "EngineArgs", None)
        if kind is None:
            self.port.sight.blind("vllm requested mode", "vLLM has no EngineArgs in this version")
            return
        self.patches.wrap(kind, "create_engine_config", "vllm requested mode", self._create_engine_config)

    def _hook_compilation(self, module: ModuleType) -> None:
        kind = getattr(module, "CompilationConfig", None)
        if kind is not None and _RESOLVE in vars(kind):  # from 0.20 on; before, the runner resolves the mode itself
            self.patches.wrap(kind, _RESOLVE, "vllm resolved mode", self._resolving)

    def _hook_dispatcher(self, module: ModuleType) -> None:
        kind = getattr(module, "CudagraphDispatcher", None)
        if kind is None:
            self.port.sight.blind("vllm dispatch", "vLLM has no CudagraphDispatcher in this version")
            return
        self.patches.wrap(kind, "dispatch", "vllm dispatch", self.steps.dispatch)

    def _hook_dp_utils(self, module: ModuleType) -> None:
        signal, wrapping = "vllm dispatch of the second runner", self.steps.dispatch_function
        original = vars(module).get(_V2_FUNCTION)
        if not self.patches.wrap(module, _V2_FUNCTION, signal, wrapping):
            return
        self.patches.wrap(module, _V2_AGREEMENT, signal, self.steps.agreement)
        # Those that took the function by name before we came, or the wrapper of a probe that was stopped since.
        for name, other in list(sys.modules.items()):
            took = name.startswith("vllm.v1.worker.gpu.") and other is not module
            if took and reaches(vars(other).get(_V2_FUNCTION), original):
                self.patches.wrap(other, _V2_FUNCTION, signal, wrapping)

    def _hook_runner_v1(self, module: ModuleType) -> None:
        kind = getattr(module, "GPUModelRunner", None)
        if kind is None:
            self.port.sight.blind("vllm steps", f"{RUNNER_V1} has no GPUModelRunner in this version")
            return
        self._hook_runner(kind)
        if "_prepare_kv_sharing_fast_prefill" in vars(kind):  # asks from 0.15 on
            self.patches.wrap(kind, "_prepare_kv_sharing_fast_prefill", "vllm dispatch", self.steps.aside)
        if loaded(DISPATCHER) is not None:
            self._hook_resolving(kind)
        elif hasattr(module, "set_forward_context"):  # to 0.10.0
            self.patches.wrap(module, "set_forward_context", "vllm dispatch", self.steps.forward_context)

    def _hook_resolving(self, kind: type) -> None:
        signal = "vllm resolved mode"
        found = [name for name in _V1_RESOLVING if name in vars(kind)]
        if not found and not hasattr(getattr(loaded(COMPILATION), "CompilationConfig", None), _RESOLVE):
            self.port.sight.blind(signal, f"{RUNNER_V1} resolves the mode elsewhere in this version")
        for name in found:
            self.patches.wrap(kind, name, signal, self._runner_resolving)

    def _hook_runner_v2(self, module: ModuleType) -> None:
        kind = getattr(module, "GPUModelRunner", None)
        if kind is None:
            self.port.sight.blind("vllm steps of the second runner", f"{RUNNER_V2} has no GPUModelRunner")
            return
        self._hook_runner(kind)

    def _hook_runner(self, kind: type) -> None:
        patches, steps = self.patches, self.steps
        patches.wrap(kind, "execute_model", "vllm steps", steps.execute_model, 2)
        patches.wrap(kind, "_dummy_run", "vllm warm-up runs", steps.dummy_run)
        patches.wrap(kind, "capture_model", "vllm graph memory", self._capture_model)
        if "profile_cudagraph_memory" in vars(kind):  # from 0.18 on
            patches.wrap(kind, "profile_cudagraph_memory", "vllm throw-away captures", self._profile)

    def _hook_worker(self, module: ModuleType) -> None:
        kind = getattr(module, "Worker", None)
        if kind is None:
            self.port.sight.blind("vllm warm-up runs", f"{WORKER} has no Worker in this version")
            return
        self.patches.wrap(kind, "compile_or_warm_up_model", "vllm warm-up runs", self._warm_up)
        self.patches.wrap(kind, "determine_available_memory", "vllm warm-up runs", self.steps.quietly)
        if "execute_dummy_batch" in vars(kind):
            self.patches.wrap(kind, "execute_dummy_batch", "vllm idle ranks", self.steps.idle_batch)

    def _create_engine_config(self, original: Function, on: Switch) -> Function:
        """Around `EngineArgs.create_engine_config`: what was asked, and what vLLM said while resolving it."""

        def create_engine_config(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(self_, *args, **kwargs)
            asked = self.guarded("vllm requested mode", on, vllm_asked.asked_of, self_) or {}
            with vllm_asked.Heard() as heard:
                config = original(self_, *args, **kwargs)
            self.guarded("vllm requested mode", on, vllm_asked.remember, config, asked, heard.texts)
            self.guarded("vllm requested mode", on, self.learn, config)
            return config

        return create_engine_config

    def _resolving(self, original: Function, on: Switch) -> Function:
        """Around the resolution of the mode: hear the reason."""

        def resolve(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            with vllm_asked.Heard() as heard:
                result = original(*args, **kwargs)
            self.guarded("vllm resolved mode", on, self._was_heard, heard.texts)
            return result

        return resolve

    def _runner_resolving(self, original: Function, on: Switch) -> Function:
        """The same where the runner resolves the mode; the configuration is known by then."""
        resolve = self._resolving(original, on)

        def resolve_and_learn(runner: Any, *args: Any, **kwargs: Any) -> Any:
            result = resolve(runner, *args, **kwargs)
            if on:
                self.guarded("vllm resolved mode", on, self.learn, getattr(runner, "vllm_config", None))
            return result

        return resolve_and_learn

    def _was_heard(self, texts: list[str]) -> None:
        for text in texts:
            if text not in self._heard:
                self._heard.append(text)
                self.port.sight.observe("mode_downgrade", text, "vllm")

    def _capture_model(self, original: Function, on: Switch) -> Function:
        """Around `capture_model`: the mode is final, and the call returns how much memory the graphs took."""

        def capture_model(runner: Any, *args: Any, **kwargs: Any) -> Any:
            self.port.work_off()  # steps before were made without graphs
            result = original(runner, *args, **kwargs)
            if on and not kwargs.get("profile_only"):  # from 0.33 on the second runner estimates with it
                self.guarded("vllm graph memory", on, self._captured, runner, result)
            return result

        return capture_model

    def _captured(self, runner: Any, taken_bytes: Any) -> None:
        self.learn(getattr(runner, "vllm_config", None))
        if isinstance(taken_bytes, int) and taken_bytes > 0:
            self._memory["pool_bytes"] = taken_bytes

    def _profile(self, original: Function, on: Switch) -> Function:
        """Around `profile_cudagraph_memory`: its captures are thrown away; it returns the estimate in bytes."""
        quiet = self.steps.quietly(original, on)

        def profile_cudagraph_memory(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            self.port.captures.enter_throwaway()
            try:
                estimate = quiet(*args, **kwargs)
            finally:
                self.port.captures.leave_throwaway()
            if isinstance(estimate, int) and estimate > 0:
                self._memory["estimated_bytes"] = estimate
            return estimate

        return profile_cudagraph_memory

    def _warm_up(self, original: Function, on: Switch) -> Function:
        """Around `Worker.compile_or_warm_up_model`: nothing counts; afterwards the configuration is final."""
        quiet = self.steps.quietly(original, on)

        def compile_or_warm_up_model(worker: Any, *args: Any, **kwargs: Any) -> Any:
            result = quiet(worker, *args, **kwargs)
            if on:
                self.guarded("vllm resolved mode", on, self.learn, getattr(worker, "vllm_config", None))
                self.guarded("vllm model size", on, self._weigh, getattr(worker, "model_runner", None))
            return result

        return compile_or_warm_up_model

    def _weigh(self, runner: Any) -> None:
        """Once the model is loaded: what a step of it must read at least."""
        config = getattr(runner, "vllm_config", None)
        text = vllm_config.reach(config, "model_config.hf_text_config")
        parallel = vllm_config.reach(config, "parallel_config")
        model = vllm_config.reach(runner, "model")
        ways = [getattr(parallel, f"{way}_parallel_size", 1) or 1 for way in ("pipeline", "tensor")]
        cache = vllm_config.reach(config, "cache_config.cache_dtype")
        self.know(**model_size(model, text, pipeline=ways[0], tensor=ways[1], cache_dtype=cache))
