"""Copies into static inputs eat what replay saves (D6)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, Estimate, EvidenceItem, Finding, Healthy, Verdict, Vote
from replaywatch.detectors import readings
from replaywatch.detectors.evidence import Evidence

# What copies cost against their length: less where they overlap other work, more with the waits around them. Source:
# the copies of the `fit` half cost 1.2 times their length.
LEAST: Final = 0.8
MOST: Final = 1.25


class CopyBound:
    """Copies between one replay and the next, outside the graph, take a tenth or more of the step.

    Bad at: copies that overlap other work cost less than their length; small copies that feed real data are needed.
    """

    name: ClassVar[str] = "copy_bound"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        work = readings.traced(evidence)
        if work is None or not work.steps:
            return Blind(self.name, "no steps were traced")
        if not work.graph_launches:
            return Healthy(self.name, "no graph is launched, so there are no static inputs")
        share = min(1.0, work.input_copy_ns / work.span_ns) if work.span_ns else 0.0
        copies = work.input_copies / work.steps
        estimate = Estimate(
            share,
            LEAST * share,
            min(1.0, MOST * share),
            work.span_ns / work.steps / 1000,
            method="time of copies into static inputs",
        )
        if estimate.severity == "none":
            return Healthy(self.name, f"copies into static inputs take {readings.percent(share)} of the step")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=estimate.severity,
            title=f"{copies:.0f} copies into static inputs a step take {readings.percent(share)} of its time",
            evidence=(
                EvidenceItem("copies into static inputs per step", round(copies, 2), "", work.method),
                EvidenceItem(
                    "time of these copies per step", round(work.input_copy_ns / work.steps / 1000, 1), "us", work.method
                ),
                EvidenceItem("bytes copied per step", round(work.input_copy_bytes / work.steps), "bytes", work.method),
                *readings.work_items(work),
                *readings.estimate_items(estimate),
            ),
            estimate=estimate,
            causes=(
                Cause(
                    "tensors that change address every step are copied to the address the graph was captured with",
                    0.8,
                    "copies between replays",
                ),
            ),
            remedy=(
                "Keep weights as module parameters or buffers, mark inputs static (torch._dynamo.mark_static_address), "
                "write results straight into the static buffers, or pass pointers instead of data."
            ),
            votes=(Vote("counterfactual", "for", "the copies were timed on the device"),),
        )
