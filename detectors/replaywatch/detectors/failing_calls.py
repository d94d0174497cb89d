"""Graph calls return errors, or a replay never ends."""

from __future__ import annotations

from typing import ClassVar

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Verdict
from replaywatch.detectors import causes
from replaywatch.detectors.evidence import Evidence


class FailingCalls:
    """Launches, updates or instantiations of graphs fail, whether or not the program looks at the error.

    Bad at: errors that a process hits only inside native code which no hook reaches.
    """

    name: ClassVar[str] = "failing_calls"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        failed = evidence.recent.dispatch.failed_calls
        seen = causes.observations(evidence, "graph_call_failed")
        if failed is None and not seen:
            return Blind(self.name, "the results of graph calls were not seen")
        total = sum((failed or {}).values()) or sum(o.count for o in seen)
        if not total:
            return Healthy(self.name, "no graph call failed")
        worst = max(failed, key=lambda e: failed[e]) if failed else seen[0].detail
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="page",
            title=f"{total} graph calls failed, most of them with {worst}",
            evidence=tuple(
                EvidenceItem(f"calls that returned {error}", n, "", evidence.recent.origin)
                for error, n in sorted((failed or {}).items(), key=lambda kv: -kv[1])
            )
            or tuple(EvidenceItem(o.detail, o.count, "times", o.where or "log") for o in seen),
            causes=(Cause(f"the driver answered {worst}", 0.8, "return codes of graph calls"),),
            remedy="Look at the error of the first failing call; results after it are not to be trusted.",
        )


class ReplayStuck:
    """A replay was launched and never ended.

    Bad at: a replay that is merely very long (a persistent kernel) is reported after the watchdog's time as well; a
    thread that polls for the end of its replay is seen only behind one that was timed.
    """

    name: ClassVar[str] = "replay_stuck"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        seen = [o for o in evidence.recent.observations if o.kind == "replay_stuck"]
        if not seen:
            if evidence.recent.timing.replay is None:
                return Blind(self.name, "replays were not timed")
            return Healthy(self.name, "timed replays ended")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="page",
            title=f"A graph replay does not end: {seen[0].detail}",
            evidence=tuple(EvidenceItem(o.detail, o.count, "times", o.where or "watchdog") for o in seen),
            causes=(Cause("a kernel in the graph waits for something that never comes", 0.5, "the launch succeeded"),),
            remedy="Take a GPU core dump or attach cuda-gdb before restarting; look for collectives that lost a rank.",
        )
