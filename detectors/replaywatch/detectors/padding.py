"""Steps are padded up to the next captured size, and the padding costs (D5)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Severity, Verdict, WarmingUp
from replaywatch.detectors import readings
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.ladder_flags import advice_text

# Batches spread evenly under a ladder of powers of two waste 24.8 %; more than that is worth a finer ladder.
INFO_SHARE: Final = 0.25
WARN_SHARE: Final = 0.40


class Padding:
    """A quarter or more of the processed tokens are padding.

    Bad at: padding is nearly free where the step is bound by reading weights, so its cost is at most the share shown;
    never a page.
    """

    name: ClassVar[str] = "padding"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        dispatch = evidence.recent.dispatch
        real, padded, origin = dispatch.real_tokens, dispatch.padded_tokens, evidence.recent.origin
        if real is None or padded is None or not padded:
            counted = _from_batches(evidence)
            if counted is None:
                return Blind(self.name, "padded tokens are unknown; attach the probe or turn on the engine's metrics")
            real, padded = counted
        if not evidence.is_recording and sum((dispatch.steps or dispatch.batch_sizes or {}).values()) < 50:
            return WarmingUp(self.name, "50 steps with known sizes")
        share = max(0.0, 1 - real / padded)
        if share < INFO_SHARE:
            return Healthy(self.name, f"{readings.percent(share)} of the processed tokens are padding")
        severity: Severity = "warn" if share >= WARN_SHARE else "info"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"{readings.percent(share)} of the processed tokens are padding up to the next captured size",
            evidence=(
                EvidenceItem("real tokens", real, "tokens", origin),
                EvidenceItem("padded tokens", padded, "tokens", origin),
                EvidenceItem("padding share", round(share, 4), "ratio", origin),
            ),
            causes=(Cause("the captured sizes are too coarse for the batches served", 0.8, "sizes seen"),),
            remedy=_remedy(evidence),
        )


def _from_batches(evidence: Evidence) -> tuple[int, int] | None:
    """Real and padded sizes from batch sizes and the ladder, for steps under the ceiling."""
    config, sizes = evidence.config, evidence.recent.dispatch.batch_sizes
    if config is None or not config.capture_sizes or not sizes or config.padding is False:
        return None
    if config.capture_unit not in (None, "sequences") or evidence.workload.phase not in (None, "decode"):
        return None
    ladder = sorted(config.capture_sizes)
    real = padded = 0
    for size, n in sizes.items():
        covering = next((rung for rung in ladder if rung >= size), None)
        if covering is not None and size > 0:
            real, padded = real + size * n, padded + covering * n
    return (real, padded) if padded else None


def _remedy(evidence: Evidence) -> str:
    advice = advice_text(evidence)
    if advice is not None:
        return advice
    sizes = evidence.recent.dispatch.batch_sizes or {}
    common = sorted(sizes, key=lambda s: -sizes[s])[:6]
    listed = ", ".join(map(str, sorted(common))) if common else "the batch sizes you serve most"
    return f"Add captured sizes at {listed}; each costs capture time and memory once, and saves its padding every step."
