"""Graphs are captured again and again (D7)."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, Estimate, EvidenceItem, Finding, Healthy, Verdict, WarmingUp
from replaywatch.detectors import causes, readings
from replaywatch.detectors.counterfactual import captured_ns, model_step, observed_ns
from replaywatch.detectors.evidence import Evidence

# One capture of 26 ms pays for 322 replays of an 8 ms step at 1 % budget.
CAPTURES_PER_REPLAY: Final = 0.003
MIN_CAPTURES: Final = 4
# Captures that nothing times may be those of the start for so long.
STARTING_SECONDS: Final = 180.0
# A step in five that captures is no ladder, even if nothing is dropped.
ONCE_RATE: Final = 0.2
# A recording is short; one capture in it may be the start.
MIN_RECORDED_CAPTURES: Final = 2


class Thrash:
    """Captures go on while replays run, so that recording takes a real share of the time.

    Bad at: the first three minutes: graphs that are captured and all kept are taken for an engine's ladder until then,
    and where nothing says what is kept, a ladder looks like recapturing until replays outnumber it.
    """

    name: ClassVar[str] = "thrash"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        told = causes.observations(evidence, "inductor_rerecord", "dynamic_shapes")
        dispatch = evidence.recent.dispatch
        captures = (dispatch.captures or {}).get("ok")
        if captures is None or dispatch.replays is None:
            if told:
                return self._told(evidence)
            return Blind(self.name, "captures and replays were not counted together")
        if evidence.lifetime.dispatch.replays == 0:
            return WarmingUp(self.name, "the first replays")
        steps = sum((dispatch.steps or {}).values()) or dispatch.replays
        rate = captures / max(1, steps)
        enough = MIN_RECORDED_CAPTURES if evidence.is_recording else MIN_CAPTURES
        if captures < enough or rate <= CAPTURES_PER_REPLAY:
            return self._told(evidence) if told else Healthy(self.name, f"{captures} captures for {steps} steps")
        return self._finding(evidence, captures, steps)

    def _finding(self, evidence: Evidence, captures: int, steps: int) -> Verdict:
        young = readings.window_seconds(evidence.lifetime) < STARTING_SECONDS
        if young and _captured_once(evidence, captures, steps):
            if not evidence.is_recording:
                return WarmingUp(self.name, "three minutes: an engine captures its sizes when it starts")
            return Healthy(self.name, f"{captures} graphs were captured at the start, and all of them are kept")
        estimate = _estimate(evidence)
        if estimate is not None and estimate.severity == "none":
            return Healthy(self.name, f"{captures} captures take {readings.percent(estimate.ratio)} of the time")
        if estimate is None and young and not evidence.is_recording:
            return WarmingUp(self.name, "three minutes: an engine captures its sizes when it starts")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=estimate.severity if estimate else "warn",
            title=f"Graphs are recorded again and again: {captures} captures for {steps} steps",
            evidence=(
                EvidenceItem("captures", captures, "", evidence.recent.origin),
                EvidenceItem("steps", steps, "", evidence.recent.origin),
                *(readings.estimate_items(estimate) if estimate else ()),
            ),
            estimate=estimate,
            causes=_shape_causes(evidence),
            remedy=_REMEDY,
        )

    def _told(self, evidence: Evidence) -> Finding:
        """The library itself reported recordings, but nothing times them."""
        seen = causes.observations(evidence, "inductor_rerecord", "dynamic_shapes")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info" if all(o.kind == "inductor_rerecord" for o in seen) else "warn",
            title=f"torch.compile records graphs again: {seen[0].detail}",
            evidence=tuple(EvidenceItem(o.detail, o.count, "times", o.where or "log") for o in seen[:5]),
            causes=_shape_causes(evidence),
            remedy=_REMEDY,
        )


_REMEDY: Final = (
    "Pad or bucket the input to few shapes, keep input addresses stable, and mark truly dynamic work "
    "with triton.cudagraph_skip_dynamic_graphs=True instead of recording each size."
)


def _captured_once(evidence: Evidence, captures: int, steps: int) -> bool:
    """Whether all graphs that were captured are still there, and most steps needed none: a ladder, not recapturing."""
    lived = evidence.lifetime.dispatch
    kept = lived.live_graphs is not None and captures <= lived.live_graphs and not lived.destroys
    return kept and captures < ONCE_RATE * steps


def _estimate(evidence: Evidence) -> Estimate | None:
    """Time spent capturing and instantiating; where steps were traced, all that makes them longer than a clean one."""
    timing, length_ns = evidence.recent.timing, evidence.recent.end_ns - evidence.recent.start_ns
    if timing.capture is None or length_ns <= 0:
        return None
    spent_ns = timing.capture.sum + (timing.instantiate.sum if timing.instantiate else 0)
    share = min(1.0, spent_ns / length_ns)
    most = max(share, _longer_than_clean(evidence))
    return Estimate((share + most) / 2, 0.9 * share, min(1.0, 1.05 * most), method="time spent capturing")


def _longer_than_clean(evidence: Evidence) -> float:
    """Share by which the mean traced step is longer than one replay; 0 when nothing was traced."""
    work = evidence.recent.traced
    step = model_step(work) if work is not None else None
    if work is None or step is None or not work.total_span_ns:
        return 0.0
    mean_ns = work.total_span_ns / (work.steps + work.skipped_steps)
    return max(0.0, 1 - captured_ns(step, observed_ns(step)) / mean_ns)


def _shape_causes(evidence: Evidence) -> tuple[Cause, ...]:
    seen = causes.observations(evidence, "dynamic_shapes", "inductor_rerecord", "graph_update_failed")
    if seen:
        return tuple(Cause(o.detail, 0.85, f"seen {readings.times(o.count)}") for o in seen[:3])
    return (Cause("each new shape or address is recorded as a new graph", 0.6, "captures continue while steps run"),)
