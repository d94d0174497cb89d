"""torch.compile was asked for graphs and skipped them, with its reason."""

from __future__ import annotations

from typing import ClassVar

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Verdict, severity_of_ratio
from replaywatch.detectors import causes, readings
from replaywatch.detectors.counterfactual import estimate_recoverable
from replaywatch.detectors.evidence import Evidence


class Skipped:
    """Inductor said why it does not use graphs; one finding with a count, however often it said so.

    Bad at: skips that Inductor does not log (see the probe's silent losses) and their share of the time.
    """

    name: ClassVar[str] = "skipped"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        seen = causes.observations(evidence, "inductor_skip", "host_graph_break")
        if not seen:
            return Blind(self.name, "no skip was reported")
        total = sum(o.count for o in seen)
        estimate = estimate_recoverable(evidence)
        severity = severity_of_ratio(estimate.low) if estimate else "warn"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info" if severity == "none" else severity,
            title=f"torch.compile skipped graphs {readings.times(total)}: {seen[0].detail}",
            evidence=(
                *(EvidenceItem(o.detail, o.count, "times", o.where or "log") for o in seen[:8]),
                *(readings.estimate_items(estimate) if estimate else ()),
            ),
            estimate=estimate,
            causes=tuple(Cause(o.detail, 0.9, f"said {readings.times(o.count)}") for o in seen[:3]),
            remedy=_remedy(seen[0].detail),
        )


def _remedy(reason: str) -> str:
    low = reason.lower()
    if "mutated" in low or "mutation" in low:
        return "Do not write into inputs inside the compiled function: return the new value, or make it a buffer."
    if "cpu device" in low or "multiple devices" in low:
        return "Move the named tensor to the GPU, if the host never reads it, or out of the compiled function."
    if "dynamic" in low or "symbolic" in low or "distinct sizes" in low:
        return "Pad or bucket the input to few shapes."
    if "re-recording" in low or "rerecord" in low:
        return "Keep input addresses stable between calls, so that recordings can be used again."
    return "Remove the named operation from the compiled function, or compile it apart from the rest."
