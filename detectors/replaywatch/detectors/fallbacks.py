"""Decode steps that have graphs to run in, and do not: why, at which sizes, and what it costs."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, Estimate, EvidenceItem, Finding, Healthy, Verdict, WarmingUp
from replaywatch.detectors import causes, readings
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.ladder_flags import advice_text

FALLBACK_SHARE: Final = 0.01
# Reasons that a step has although its process captured graphs for its kind of work. Others are judged elsewhere: modes
# by disabled and downgrade, sizes past the largest by overflow, torch.compile's reasons by skipped and thrash.
_REMEDIES: Final = {
    "no_matching_graph": "Turn padding on, or capture the sizes that are missing.",
    "ranks_disagree": (
        "Let every data-parallel rank run the same mode: the slowest one decides. Look for a rank whose batch is past "
        "its ceiling, that prefills while others decode, or that runs its idle batch eager."
    ),
    "cascade_attention": "Switch cascade attention off where prefixes are short (vLLM: --disable-cascade-attn).",
    "lora": "Capture graphs for steps with adapters (vLLM: cudagraph_specialize_lora), or serve adapters apart.",
    "speculative_width": "Capture the widths that the drafts really have, or keep the number of drafts fixed.",
    "multimodal_input": "Run the encoder's steps apart, so that decode steps keep their graphs.",
    "capture_failed": "Find out why capturing failed; the size runs eager for as long as the process lives.",
}


class Fallbacks:
    """A share of the decode steps is not replayed for a reason that lies in the batch, not in the configuration.

    Severity from the process itself, replayed against other steps, where both were timed; information otherwise.

    Bad at: engines without an adapter name no reasons; a step that had to run eager for several reasons names one.
    """

    name: ClassVar[str] = "fallbacks"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        dispatch = evidence.recent.dispatch
        idle = sum(o.count for o in causes.observations(evidence, "idle_rank_eager"))
        steps = sum((dispatch.steps or {}).values())
        if dispatch.fallbacks is None and not idle:
            return Blind(self.name, "nothing says why steps fall back; attach the probe to an engine that it knows")
        if evidence.workload.phase == "prefill":
            return Healthy(self.name, "prefill is not expected to be replayed")
        reasons = {r: n for r, n in (dispatch.fallbacks or {}).items() if r in _REMEDIES and n}
        share = sum(reasons.values()) / steps if steps else 0.0
        if not evidence.is_recording and steps < readings.MIN_LIVE_STEPS:
            return WarmingUp(self.name, f"{readings.MIN_LIVE_STEPS - steps} more steps")
        if share >= FALLBACK_SHARE:
            return self._finding(evidence, reasons, share)
        if idle:
            return self._idle(evidence, idle)
        return Healthy(self.name, f"{readings.percent(share)} of the steps fall back for reasons of their batch")

    def _finding(self, evidence: Evidence, reasons: dict[str, int], share: float) -> Verdict:
        estimate = _estimate(evidence)
        ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        worst, total = ranked[0][0], sum(reasons.values())
        severity = estimate.severity if estimate else "info"
        sizes = evidence.recent.dispatch.eager_batch_sizes or {}
        common = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:4]
        remedy = _REMEDIES[worst]
        if worst == "no_matching_graph" and (advice := advice_text(evidence)):
            remedy = f"{remedy} {advice}"
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info" if severity == "none" else severity,
            title=f"{readings.percent(share)} of the steps are not replayed: {worst.replace('_', ' ')}",
            evidence=(
                *(EvidenceItem(f"fallbacks, {r}", n, "steps", evidence.recent.origin) for r, n in ranked),
                *(EvidenceItem(f"not replayed at batch {s}", n, "steps", evidence.recent.origin) for s, n in common),
                *(readings.estimate_items(estimate) if estimate else ()),
            ),
            estimate=estimate,
            causes=tuple(Cause(r.replace("_", " "), 0.9 * n / total, f"{n} of {total}") for r, n in ranked[:4]),
            remedy=remedy,
            is_fault=severity != "none" and estimate is not None,
        )

    def _idle(self, evidence: Evidence, times: int) -> Verdict:
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title="An idle rank runs its dummy batch eager, and the busy ranks wait for it",
            evidence=(EvidenceItem("eager dummy batches", times, "", evidence.recent.origin),),
            remedy="Capture the size of the dummy batch on every rank, or update the engine.",
            is_fault=False,
        )


def _estimate(evidence: Evidence) -> Estimate | None:
    """What the fallen steps cost, from the process's own times by mode; None where one of the two was not timed."""
    times = evidence.recent.timing.step_by_mode or {}
    full, fallen = times.get("full"), times.get("eager") or times.get("piecewise")
    if full is None or fallen is None or full.count < 3 or fallen.count < 3 or not full.mean or not fallen.mean:
        return None
    weight = fallen.sum / (sum(h.sum for h in times.values()) or 1)
    high = max(0.0, 1 - full.mean / fallen.mean) * weight
    low = max(0.0, 1 - 1.5 * full.mean / fallen.mean) * weight
    return Estimate((low + high) / 2, low, high, step_us=fallen.mean / 1000, method="replayed against other steps")
