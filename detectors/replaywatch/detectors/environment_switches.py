"""Variables of the environment that keep graphs off, by the values that do so. A lint; needs no traffic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Verdict
from replaywatch.contract.window import Engine
from replaywatch.detectors.evidence import Evidence

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


class EnvironmentSwitches:
    """A variable in the environment of the process keeps graphs off, whatever the engine was asked for.

    Information, before there is any traffic: what it costs shows in the steps.

    Bad at: variables that an engine's own code reads under other names; processes without Python, whose environment the
    probe does not see.
    """

    name: ClassVar[str] = "environment_switches"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        config = evidence.config
        if config is None or not config.environment:
            return Blind(self.name, "no variable that switches graphs was seen in the environment")
        found = harmful_switches(config)
        if not found:
            return Healthy(self.name, "no variable of the environment keeps graphs off")
        first, value = found[0]
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"{first.name}={value} is set: {first.does}",
            evidence=tuple(EvidenceItem(s.name, v, "", "environment of the process") for s, v in found),
            causes=tuple(Cause(f"{s.name}={v} is set: {s.does}", 0.9, "environment of the process") for s, v in found),
            remedy=f"Start without {' and '.join(s.name for s, _ in found)}; look in the image and the wrapper.",
            is_fault=False,
        )
