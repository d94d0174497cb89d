"""Lone requests are padded to a much larger graph: the price at low load (L5)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, EvidenceItem, Finding, Healthy, Verdict, WarmingUp
from replaywatch.detectors import readings
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.ladder_flags import advice_text, tokens_of_a_sequence

MUCH_LARGER: Final = 4
SHARE: Final = 0.25
LEAST_SIZE: Final = 8


class LowLoad:
    """A quarter of the steps have a batch of less than a fourth of the smallest captured size, which is 8 or more.

    Information: padding of a few sequences is nearly free on a large model, and is latency on a small one.

    Bad at: it knows sizes and not times; the same steps eager would have to be timed to say what it costs.
    """

    name: ClassVar[str] = "low_load"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        config, sizes = evidence.config, evidence.recent.dispatch.batch_sizes
        if config is None or not config.capture_sizes or not sizes or evidence.workload.phase == "prefill":
            return Blind(self.name, "captured sizes and batches are not both known")
        total = sum(sizes.values())
        if total < readings.MIN_LIVE_STEPS and not evidence.is_recording:
            return WarmingUp(self.name, f"{readings.MIN_LIVE_STEPS - total} more steps")
        smallest = max(1, min(config.capture_sizes) // tokens_of_a_sequence(evidence))
        small = sum(n for size, n in sizes.items() if size * MUCH_LARGER < smallest)
        if config.padding is False or smallest < LEAST_SIZE or not total or small < SHARE * total:
            return Healthy(self.name, f"the smallest captured size is {smallest}")
        advice = advice_text(evidence)
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"{readings.percent(small / total)} of the steps are small and padded to {smallest}, the least size",
            evidence=(
                EvidenceItem("smallest captured size", smallest, "sequences", "configuration"),
                EvidenceItem("steps below a fourth of it", small, "steps", evidence.recent.origin),
            ),
            remedy="Capture sizes 1, 2 and 4 as well." + (f" {advice}" if advice else ""),
            is_fault=False,
        )
