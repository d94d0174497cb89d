"""The SGLang adapter: one hook on the model runner's step, one on each draft runner's decision, by name.

`ModelRunner._forward_raw` has carried the same name and answer (`can_run_graph`) from 0.5.9 to 0.5.23, across the old
CudaGraphRunner and the new Decode- and PrefillCudaGraphRunner; only the reasons are read from what differs.

A draft model is one step for each batch that it drafts for, with graphs and without: a graph holds all tokens that are
drafted ahead, an eager draft runs the model once for each, and some workers ask the runner of the graphs twice.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

from replaywatch.probe.engines import sglang_config, sglang_reasons
from replaywatch.probe.engines.model_size import model_size
from replaywatch.probe.engines.port import MEASURED_ONE_IN, EngineAdapter, Port
from replaywatch.probe.patching import Function, Switch

RUNNER = "sglang.srt.model_executor.model_runner"
# Module and class of the draft models' runners, whose `can_run_graph` (to 0.5.11 `can_run`) decides.
DRAFTS = {
    "sglang.srt.speculative.eagle_draft_cuda_graph_runner": "EAGLEDraftCudaGraphRunner",
    "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner": "EAGLEDraftExtendCudaGraphRunner",
    "sglang.srt.speculative.multi_layer_eagle_draft_extend_cuda_graph_runner": (
        "MultiLayerEagleDraftExtendCudaGraphRunner"
    ),
    "sglang.srt.speculative.frozen_kv_mtp_cuda_graph_runner": "FrozenKVMTPCudaGraphRunner",
}
# What they capture one size with; to 0.5.13 the first.
CAPTURES = ("capture_one_batch_size", "capture_one_shape")


class _Here(threading.local):
    """One thread's captures of draft graphs under way, and the batch that was drafted for last."""

    captures = 0
    drafted: weakref.ref[Any] | None = None


class SglangAdapter(EngineAdapter):
    """Counts target steps at `_forward_raw` and draft steps where the draft runner decides."""

    name = "sglang"
    brings: ClassVar[Mapping[str, tuple[str, str]]] = {
        "sglang.srt.layers.attention.attention_registry": ("sglang steps", RUNNER)
    }

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._here = _Here()
        self._turn = MEASURED_ONE_IN - 1
        self._learned: set[tuple[int, int]] = set()

    def watched(self) -> dict[str, Callable[[ModuleType], None]]:
        """See the base."""
        return {RUNNER: self._hook_runner, **dict.fromkeys(DRAFTS, self._hook_draft)}

    def _hook_runner(self, module: ModuleType) -> None:
        kind = getattr(module, "ModelRunner", None)
        if kind is None:
            self.port.sight.blind("sglang steps", f"{RUNNER} has no ModelRunner in this version")
            return
        self.patches.wrap(kind, "_forward_raw", "sglang steps", self._forward_raw)

    def _hook_draft(self, module: ModuleType) -> None:
        kind = getattr(module, DRAFTS[module.__name__], None)
        if kind is None:
            self.port.sight.blind("sglang draft steps", f"{module.__name__} has other classes in this version")
            return
        name = "can_run_graph" if "can_run_graph" in vars(kind) else "can_run"
        self.patches.wrap(kind, name, "sglang draft steps", self._draft_decides, 2)
        capture = next((name for name in CAPTURES if name in vars(kind)), CAPTURES[-1])
        self.patches.wrap(kind, capture, "sglang draft captures", self._capture)

    def _forward_raw(self, original: Function, on: Switch) -> Function:
        """Around `_forward_raw(self, forward_batch, ...)`; the batch is read first, for it may be padded in place."""
        here, now_ns = self._here, self.port.clock.now_ns

        def _forward_raw(runner: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            if not on or here.captures:
                return original(runner, forward_batch, *args, **kwargs)
            turn = self._turn
            self._turn = turn - 1 if turn else MEASURED_ONE_IN - 1
            begin_ns = 0 if turn else now_ns()
            seen = self.guarded("sglang steps", on, sglang_reasons.Batch, runner, forward_batch)
            asked_ns = now_ns()
            result = original(runner, forward_batch, *args, **kwargs)
            at_ns = now_ns()
            if seen is not None:
                self.guarded("sglang steps", on, self._count, runner, forward_batch, seen, result, asked_ns, at_ns)
            if begin_ns:
                self.port.took(asked_ns - begin_ns + now_ns() - at_ns)
            return result

        return _forward_raw

    def _draft_decides(self, original: Function, on: Switch) -> Function:
        """Around a draft runner's `can_run_graph(self, forward_batch)`."""

        def can_run_graph(runner: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(runner, forward_batch, *args, **kwargs)
            if on:
                self.guarded("sglang draft steps", on, self._count_draft, runner, forward_batch, bool(result))
            return result

        return can_run_graph

    def _capture(self, original: Function, on: Switch) -> Function:
        """Around a draft runner's capture of one size, which warms up and captures through `_forward_raw`."""
        here = self._here

        def capture(*args: Any, **kwargs: Any) -> Any:
            if not on:
                return original(*args, **kwargs)
            here.captures += 1
            try:
                return original(*args, **kwargs)
            finally:
                here.captures -= 1

        return capture

    def _count(
        self, runner: Any, forward_batch: Any, seen: sglang_reasons.Batch, result: Any, asked_ns: int, at_ns: int
    ) -> None:
        self._learn(runner)
        draft = getattr(runner, "is_draft_worker", False)
        if seen.phase is None or (draft and not self._begins_draft(forward_batch)):
            return
        component = "draft" if draft else "target"
        if not draft and seen.phase == "decode":
            self.note_context(sglang_reasons.context_of, seen)
        if getattr(result, "can_run_graph", False):
            mode, padded = sglang_reasons.replayed(runner, seen)
            why = sglang_reasons.why_piecewise(seen) if mode == "piecewise" else None
            self.port.step(
                mode, seen.batch, seen.tokens, padded, why, seen.phase, component, asked_ns=asked_ns, at_ns=at_ns
            )
            return
        why, size = sglang_reasons.why_eager(runner, forward_batch, seen)
        self.port.step(
            "eager", size, seen.tokens, seen.tokens, why, seen.phase, component, asked_ns=asked_ns, at_ns=at_ns
        )

    def _count_draft(self, runner: Any, forward_batch: Any, replayed: bool) -> None:
        mode = forward_batch.forward_mode
        if getattr(mode, "_name_", str(mode)) == "IDLE" or not self._begins_draft(forward_batch):
            return
        batch = int(forward_batch.batch_size)
        why = None if replayed else sglang_reasons.why_runner_refuses(runner, forward_batch, batch)[0]
        self.port.step("full" if replayed else "eager", batch, None, None, why, None, "draft")

    def _begins_draft(self, forward_batch: Any) -> bool:
        """Whether this is the first that is heard of a batch; the batch itself must not be kept alive."""
        last = self._here.drafted
        if last is not None and last() is forward_batch:
            return False
        self._here.drafted = weakref.ref(forward_batch)
        return True

    def _learn(self, runner: Any) -> None:
        """Take over the configuration, once per runner and set of graphs."""
        graphs = sglang_config.decode_runner(runner)
        key = (id(runner), id(graphs))
        if key in self._learned:
            return
        if len(self._learned) > 64:
            self._learned.clear()
        self._learned.add(key)
        if not getattr(runner, "is_draft_worker", False):
            self.know(**sglang_config.config_fields(runner))
            self.identify(**sglang_config.workload_fields(runner))
            text = getattr(getattr(runner, "model_config", None), "hf_text_config", None)
            model, cache = getattr(runner, "model", None), getattr(runner, "kv_cache_dtype", None)
            ranks = sglang_config.attention_ranks(runner)
            self.know(**model_size(model, text, tensor=ranks, cache_dtype=cache))
