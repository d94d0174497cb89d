"""A capture failed, or the process died around it (D8)."""

from __future__ import annotations

from typing import ClassVar

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Severity, Verdict
from replaywatch.detectors import causes, readings
from replaywatch.detectors.evidence import Evidence


class CaptureFailed:
    """A capture ended in an error; worse when the process ended with it.

    Bad at: engines that fall back silently after a failed capture leave no error here, only the missing replays.
    """

    name: ClassVar[str] = "capture_failed"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        captures = evidence.lifetime.dispatch.captures
        seen = causes.observations(evidence, "capture_failed", "out_of_memory", "process_died")
        failed = (captures or {}).get("failed", 0)
        if not failed and not seen:
            if captures is None:
                return Blind(self.name, "captures were not counted")
            return Healthy(self.name, f"{captures.get('ok', 0)} captures, none failed")
        died = any(o.kind == "process_died" for o in seen)
        severity: Severity = "page" if died else "warn"
        what = seen[0].detail if seen else f"{failed} captures failed"
        first = next((o for o in seen if o.kind != "process_died"), seen[0] if seen else None)
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=("The process died during start-up or capture: " if died else "A graph capture failed: ")
            + (first.detail if first else what),
            evidence=(
                EvidenceItem("failed captures", failed, "", evidence.lifetime.origin),
                *(EvidenceItem(o.detail, o.count, "times", o.where or evidence.lifetime.origin) for o in seen[:5]),
            ),
            causes=tuple(Cause(o.detail, 0.8, f"seen {readings.times(o.count)}") for o in seen[:3]),
            remedy=_remedy({o.kind for o in seen}),
        )


def _remedy(kinds: set[str]) -> str:
    if "out_of_memory" in kinds:
        return (
            "Leave memory for the graphs: lower the memory share (gpu-memory-utilization, mem-fraction-static), "
            "capture fewer or smaller sizes, or shorten the context; then start again and check that graphs are used."
        )
    if "capture_failed" not in kinds and "process_died" in kinds:
        return (
            "Look at what ended the process (the kernel's log for an out-of-memory kill, the container's exit code); "
            "graph memory is taken at this point of the start, so a lower memory share or fewer sizes may help."
        )
    return (
        "Find the operation that cannot be captured (host reads, allocations on another stream, unsupported calls) "
        "in the error above and move it out of the captured step; check afterwards that graphs are used."
    )
