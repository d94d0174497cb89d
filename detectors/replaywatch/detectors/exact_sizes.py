"""Padding is off: only the listed sizes are replayed, all between them run eager. A lint; needs no traffic."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, EvidenceItem, Finding, Healthy, Verdict
from replaywatch.detectors.engine_flags import sizes_flag
from replaywatch.detectors.evidence import Evidence

MAX_TOLD: Final = 8


class ExactSizes:
    """Graphs are replayed at exact sizes only, and the sizes leave holes.

    Information: what it costs shows in the steps, once there are any.

    Bad at: services whose batches only ever have the listed sizes lose nothing.
    """

    name: ClassVar[str] = "exact_sizes"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        config = evidence.config
        if config is None or config.padding is None or not config.capture_sizes:
            return Blind(self.name, "neither the padding switch nor the captured sizes are known")
        if config.padding:
            return Healthy(self.name, "batches are padded to the next captured size")
        sizes = sorted(config.capture_sizes)
        holes = sorted(set(range(1, sizes[-1] + 1)) - set(sizes))
        if not holes:
            return Healthy(self.name, "every size up to the largest is captured")
        told = ", ".join(map(str, holes[:MAX_TOLD])) + (", ..." if len(holes) > MAX_TOLD else "")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"Padding is off and {len(holes)} sizes up to {sizes[-1]} have no graph: {told}",
            evidence=(
                EvidenceItem("padding", "off", "", "configuration"),
                EvidenceItem("captured sizes", len(sizes), "", "configuration"),
                EvidenceItem("sizes without a graph", len(holes), "", "configuration"),
            ),
            remedy=_remedy(evidence, sizes),
            is_fault=False,
        )


def _remedy(evidence: Evidence, sizes: list[int]) -> str:
    engine = evidence.config.engine if evidence.config else evidence.workload.engine
    if engine == "trtllm":
        return f"Turn padding on: {sizes_flag(engine, sizes)}"
    if engine == "sglang":
        return "Start without --disable-cuda-graph-padding."
    return "Turn padding on, or capture every size that is served."
