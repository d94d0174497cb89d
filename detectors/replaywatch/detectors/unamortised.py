"""Graphs that are not replayed often enough to pay for their capture."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, EvidenceItem, Finding, Healthy, Verdict, WarmingUp
from replaywatch.detectors import readings
from replaywatch.detectors.evidence import Evidence

LEAST_CAPTURE_SECONDS: Final = 1.0
GIVEN_SECONDS: Final = 1800.0


class Unamortised:
    """Capturing took longer than all replays so far have saved, half an hour after the start or at a recording's end.

    Break-even is capture time over what one replay saves against an eager step. Information: whether it matters depends
    on how long the process will live.

    Bad at: it needs eager and replayed steps of one process; eager steps of other sizes make the saving wrong.
    """

    name: ClassVar[str] = "unamortised"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        lived, times = evidence.lifetime, evidence.lifetime.timing.step_by_mode or {}
        capture, eager, full = lived.timing.capture, times.get("eager"), times.get("full")
        if (
            capture is None
            or lived.dispatch.replays is None
            or not eager
            or not full
            or not full.mean
            or not eager.mean
        ):
            return Blind(self.name, "capture time, replays and steps of both kinds are needed")
        saved_ns = eager.mean - full.mean
        spent_ns = capture.sum + (lived.timing.instantiate.sum if lived.timing.instantiate else 0)
        if saved_ns <= 0 or spent_ns < LEAST_CAPTURE_SECONDS * 1e9:
            return Healthy(self.name, "capturing took little, or replays save nothing: other detectors judge that")
        needed, replays = spent_ns / saved_ns, lived.dispatch.replays
        if replays >= needed:
            return Healthy(self.name, f"{replays} replays paid for the capture ({needed:.0f} were needed)")
        if not evidence.is_recording and readings.window_seconds(lived) < GIVEN_SECONDS:
            return WarmingUp(self.name, f"{needed - replays:.0f} more replays pay for the capture")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="info",
            title=f"Capturing took {spent_ns / 1e9:.1f} s; {replays} replays have saved less than that",
            evidence=(
                EvidenceItem("capture and instantiation", round(spent_ns / 1e9, 2), "s", lived.origin),
                EvidenceItem("saved by a replay", round(saved_ns / 1000, 1), "us", lived.origin),
                EvidenceItem("replays to break even", round(needed), "", lived.origin),
                EvidenceItem("replays so far", replays, "", lived.origin),
            ),
            remedy="Capture fewer sizes, or run eager where processes live this short.",
            is_fault=False,
        )
