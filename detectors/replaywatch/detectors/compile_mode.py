"""torch.compile in a mode without graphs. A lint; what it costs is judged from kernels."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, EvidenceItem, Finding, Healthy, Verdict
from replaywatch.detectors.evidence import Evidence

_WITHOUT_GRAPHS: Final = ("default", "max-autotune-no-cudagraphs")
_SERVING: Final = ("vllm", "sglang", "trtllm", "tgi", "llama.cpp")


class CompileMode:
    """The code is compiled in a mode that uses no graphs, and nothing else captures it.

    Information: training steps and large batches lose nothing by it.

    Bad at: a mode that compiles a part of the model nobody waits for.
    """

    name: ClassVar[str] = "compile_mode"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        config = evidence.config
        if config is None or config.compile_mode is None:
            return Blind(self.name, "no call of torch.compile was seen")
        if config.engine in _SERVING:
            return Blind(self.name, "the engine captures its graphs itself")
        if config.compile_mode not in _WITHOUT_GRAPHS:
            return Healthy(self.name, f'torch.compile mode "{config.compile_mode}" uses graphs')
        if evidence.lifetime.dispatch.replays:
            return Healthy(self.name, "graphs are replayed beside the compiled code")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f'torch.compile runs in mode "{config.compile_mode}", which uses no CUDA graphs',
            evidence=(EvidenceItem("compile mode", config.compile_mode, "", "torch.compile"),),
            remedy='Where steps are short and repeat, compile them with mode="reduce-overhead".',
            is_fault=False,
        )
