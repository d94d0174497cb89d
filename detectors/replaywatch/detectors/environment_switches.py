"""Variables of the environment that keep graphs off, by the values that do so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Engine

# Engines whose processes run torch, and those whose graphs need torch.compile.
_TORCH: Final[tuple[Engine, ...]] = ("vllm", "sglang", "trtllm", "tgi", "transformers", "torch", "unknown")
_COMPILED: Final[tuple[Engine, ...]] = ("vllm", "transformers", "torch", "unknown")


@dataclass(frozen=True, slots=True)
class Switch:
    """A variable that keeps graphs off in the engines that read it, where its value `is_harmful`."""

    name: str
    is_harmful: Callable[[str], bool]
    does: str
    engines: tuple[Engine, ...]


def _is_one(value: str) -> bool:
    return value == "1"


def _is_zero(value: str) -> bool:
    return value == "0"


def _is_not_zero(value: str) -> bool:
    return value not in ("0", "")


def _is_set(_: str) -> bool:
    return True


# Source: `torch/_dynamo/config.py` and `eval_frame.py`; `c10/cuda/CUDACachingAllocator.cpp` and `ggml-cuda`, which ask
# only whether the variable is there; CUDA's programming guide; the server of TGI.
SWITCHES: Final = (
    Switch("TORCH_COMPILE_DISABLE", _is_one, "torch.compile is off, and with it its graphs", _COMPILED),
    Switch("TORCHDYNAMO_DISABLE", _is_one, "torch.compile is off, and with it its graphs", _COMPILED),
    Switch("PYTORCH_NO_CUDA_MEMORY_CACHING", _is_set, "graphs cannot be captured without torch's allocator", _TORCH),
    Switch("CUDA_LAUNCH_BLOCKING", _is_not_zero, "every launch waits for the device", _TORCH),
    Switch("CUDA_GRAPHS", _is_zero, "TGI captures no graphs", ("tgi",)),
    Switch("GGML_CUDA_DISABLE_GRAPHS", _is_set, "llama.cpp captures no graphs, whatever the value", ("llama.cpp",)),
)


def harmful_switches(config: EngineConfig) -> list[tuple[Switch, str]]:
    """Switches that keep graphs off in a process, each with its value."""
    set_here = [(s, config.environment[s.name]) for s in SWITCHES if s.name in config.environment]
    return [
        (switch, value) for switch, value in set_here if config.engine in switch.engines and switch.is_harmful(value)
    ]
