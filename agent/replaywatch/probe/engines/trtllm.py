"""The TensorRT-LLM adapter, for its PyTorch backend: the graph runner's decision, and the engine's warm-up.

Source: `tensorrt_llm/_torch/pyexecutor/cuda_graph_runner.py` in its public repository, several revisions of 2025 and
2026: the answer begins with a truth value in the older ones and with the metadata, or None, in the newer ones. Engines
built for the C++ runtime pass none of these points.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from itertools import chain
from types import ModuleType
from typing import Any, ClassVar

from replaywatch.probe.engines.model_size import model_size
from replaywatch.probe.engines.port import EngineAdapter, Port
from replaywatch.probe.patching import Function, Switch

RUNNER = "tensorrt_llm._torch.pyexecutor.cuda_graph_runner"
ENGINE = "tensorrt_llm._torch.pyexecutor.model_engine"


class _Here(threading.local):
    quiet = 0


class TrtllmAdapter(EngineAdapter):
    """Counts a step where the runner says whether a graph can run it."""

    name = "trtllm"
    brings: ClassVar[Mapping[str, tuple[str, str]]] = {
        "tensorrt_llm._torch.pyexecutor.py_executor": ("trtllm steps", RUNNER),
        "tensorrt_llm._torch.pyexecutor.py_executor_creator": ("trtllm warm-up runs", ENGINE),
    }

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._here = _Here()
        self._learned: weakref.WeakSet[Any] = weakref.WeakSet()

    def watched(self) -> dict[str, Callable[[ModuleType], None]]:
        """See the base."""
        return {RUNNER: self._hook_runner, ENGINE: self._hook_engine}

    def _hook_runner(self, module: ModuleType) -> None:
        kind = getattr(module, "CUDAGraphRunner", None)
        if kind is None:
            self.port.sight.blind("trtllm steps", f"{RUNNER} has no CUDAGraphRunner in this version")
            return
        self.patches.wrap(kind, "maybe_get_cuda_graph", "trtllm steps", self._decides)

    def _hook_engine(self, module: ModuleType) -> None:
        kind = getattr(module, "PyTorchModelEngine", None)
        if kind is None:
            self.port.sight.blind("trtllm warm-up runs", f"{ENGINE} has no PyTorchModelEngine in this version")
            return
        self.patches.wrap(kind, "warmup", "trtllm warm-up runs", self._quietly)

    def _quietly(self, original: Function, on: Switch) -> Function:
        here = self._here

        def warmup(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            here.quiet += 1
            try:
                return original(*args, **kwargs)
            finally:
                here.quiet -= 1

        return warmup

    def _decides(self, original: Function, on: Switch) -> Function:
        """Around `maybe_get_cuda_graph(self, batch, ...)`."""
        here = self._here

        def maybe_get_cuda_graph(runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(runner, batch, *args, **kwargs)
            if on and not here.quiet:
                self.guarded("trtllm steps", on, self._count, runner, batch, result)
            return result

        return maybe_get_cuda_graph

    def _count(self, runner: Any, batch: Any, result: Any) -> None:
        draft = bool(_setting(runner, "is_draft_model"))
        if not draft and runner not in self._learned:
            self._learned.add(runner)
            self._learn(runner)
        if _idle(batch):
            return
        answer = result[0] if isinstance(result, tuple) else result
        padded = int(batch.batch_size)
        real = padded - _paddings(getattr(batch, "generation_requests", ()))
        phase = _phase(batch)
        component = "draft" if draft else "target"
        if answer is not None and answer is not False:
            self.port.step("full", real, real, padded, None, phase, component)
        else:
            self.port.step("eager", real, real, padded, self._why(runner, batch, phase), phase, component)
        if not draft and phase == "decode":
            self.note_context(_context_of, batch)

    def _why(self, runner: Any, batch: Any, phase: str) -> str:
        if phase != "decode":
            return "prefill_by_design"
        if not getattr(runner, "enabled", True):
            return "mode_none"
        if not getattr(batch, "can_run_cuda_graph", True):
            return "other"
        sizes, size = getattr(runner, "supported_batch_sizes", None) or (), int(batch.batch_size)
        most = getattr(runner, "max_supported_batch_size", None) or max(sizes, default=0)
        if most and size > most:
            return "above_ceiling"
        if size not in sizes:
            return "no_matching_graph"
        return "ranks_disagree" if _setting(runner, "enable_attention_dp") else "other"

    def _learn(self, runner: Any) -> None:
        sizes = getattr(runner, "supported_batch_sizes", None)
        enabled = bool(getattr(runner, "enabled", True))
        self.know(
            engine="trtllm",
            graphs_enabled=enabled,
            resolved_mode="FULL" if enabled else "DISABLED",
            enforced_by=None if enabled else "cuda_graph_config: null in the LLM arguments",
            capture_sizes=sorted({int(s) for s in sizes}) if sizes else None,
            max_capture_size=getattr(runner, "max_supported_batch_size", None) or None,
            capture_unit="sequences",
            padding=getattr(runner, "padding_enabled", None),
            max_batch_size=_setting(runner, "batch_size"),
        )
        model = getattr(getattr(runner, "engine_ref", lambda: None)(), "model", None)
        mapping = getattr(getattr(model, "model_config", None), "mapping", None)
        # Where attention is data-parallel, each rank has all heads of its own sequences.
        tensor = 1 if getattr(mapping, "enable_attention_dp", False) else getattr(mapping, "tp_size", 1)
        self.know(**model_size(model, getattr(model, "config", None), tensor=tensor if type(tensor) is int else 1))


def _idle(batch: Any) -> bool:
    """Whether a rank only keeps the others company, with requests that stand in for missing ones."""
    requests = chain(*(getattr(batch, name, None) or () for name in ("context_requests", "generation_requests")))
    return all(getattr(r, "is_attention_dp_dummy", False) or getattr(r, "is_cuda_graph_dummy", False) for r in requests)


def _paddings(requests: Any) -> int:
    """Dummy requests at the end of a batch, appended to reach the next captured size."""
    n = 0
    for request in reversed(requests or ()):
        if not getattr(request, "is_cuda_graph_dummy", False):
            break
        n += 1
    return n


def _context_of(batch: Any) -> tuple[int, int] | None:
    """Tokens of the requests that decode; `max_beam_num_tokens` is what the engine takes its positions from."""
    requests = batch.generation_requests or ()
    counts = (getattr(r, "max_beam_num_tokens", None) for r in requests if not getattr(r, "is_cuda_graph_dummy", False))
    lengths = [n for n in counts if type(n) is int]
    return (sum(lengths), len(lengths)) if lengths else None


def _phase(batch: Any) -> str:
    context = len(getattr(batch, "context_requests", None) or ())
    if not context:
        return "decode"
    return "mixed" if getattr(batch, "generation_requests", None) else "prefill"


def _setting(runner: Any, name: str) -> Any:
    """A setting of the runner's own configuration (newer) or of the engine it belongs to (older)."""
    config = getattr(runner, "config", None)
    if config is not None and hasattr(config, name):
        return getattr(config, name)
    engine = getattr(runner, "engine_ref", lambda: None)()
    return getattr(engine, name, None)
