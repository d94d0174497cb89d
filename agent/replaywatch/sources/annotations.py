"""What the names of annotations say: steps of profilers and engines, phase and batch size; which ones mark no step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from replaywatch.contract.window import Engine, Phase


@dataclass(frozen=True, slots=True)
class StepLabel:
    """An engine's own name of a step, taken apart. `batch_size` counts sequences."""

    engine: Engine
    phase: Phase | None
    batch_size: int | None


# vLLM: execute_context_1(888_788544)_generation_0(0), execute_32_context_0(sq0…)_generation_32(sq32…).
_VLLM: Final = re.compile(r"^execute_(?:\d+_)?context_(\d{1,9})(?:\([^)]*\))?_generation_(\d{1,9})(?:\([^)]*\))?$")
# TensorRT-LLM: [Executor] _forward_step 12: 0 ctx reqs, 0 ctx tokens, 32 gen reqs.
_TRTLLM: Final = re.compile(
    r"^\[Executor\] _forward_step(?: \d+)?: (\d{1,9}) ctx reqs,(?: \d+ ctx tokens,)? (\d{1,9}) gen reqs"
)
# SGLang: step[DECODE bs=64], step[EXTEND bs=2 toks=14721], with more after that on request.
_SGLANG: Final = re.compile(r"^step\[([A-Z_]+) bs=(\d{1,9})[^\]]*\]$")
_SGLANG_PHASES: Final[dict[str, Phase]] = {
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "MIXED": "mixed",
}
PROFILER_STEP: Final = re.compile(r"^ProfilerStep#?\s*\d+")
# Ranges that libraries open inside a step, again and again.
_INNER: Final = re.compile(
    r"(?i)^(?:nccl|c10d|gloo|aten::|prim::|autograd|enumerate\(|optimizer|## |torchdynamo|torch-compiled|"
    r"compiledfx|inductor|dataloader|pytorch profiler|record_param_comms|cudagraph|void |triton_|"
    r"cublas|cudnn|cutlass|memcpy|memset|layer)|, op_id = \d+|^\w+Backward\d*\b"
)
_DIGITS: Final = re.compile(r"\d+")


def _phase(context: int, generation: int) -> Phase | None:
    if context and generation:
        return "mixed"
    if context:
        return "prefill"
    return "decode" if generation else None


def engine_label(name: str) -> StepLabel | None:
    """The step that an engine names so; None for any other annotation."""
    for engine, pattern in (("vllm", _VLLM), ("trtllm", _TRTLLM)):
        found = pattern.match(name)
        if found:
            context, generation = int(found[1]), int(found[2])
            return StepLabel(engine, _phase(context, generation), context + generation or None)  # type: ignore[arg-type]
    found = _SGLANG.match(name)
    if found:
        return StepLabel("sglang", _SGLANG_PHASES.get(found[1]), int(found[2]) or None)
    return None


def is_inner(name: str) -> bool:
    """Whether an annotation is one that libraries open inside steps, and so never marks a step."""
    return bool(_INNER.search(name)) and not name.startswith("ProfilerStep")


def family(name: str) -> str:
    """A name without its numbers, so that step_1 and step_2 are of one family."""
    return _DIGITS.sub("#", name)
