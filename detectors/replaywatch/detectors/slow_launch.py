"""Launching a graph itself takes the host long."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Severity, Verdict
from replaywatch.detectors import readings
from replaywatch.detectors.evidence import Evidence

# Source: 2.5 us and 1 ns a node are published for repeated launches; a Python caller adds about 2 us.
USUAL_US: Final = 5.0
NODE_US: Final = 0.001
TIMES_USUAL: Final = 5.0
TIMES_ELSEWHERE: Final = 2.0
MIN_LAUNCHES: Final = 100
INFO_SHARE: Final = 0.02
WARN_SHARE: Final = 0.10


class SlowLaunch:
    """A graph launch takes five times as long as it should, or twice as long as under other versions of the service.

    A warning where launches take a tenth of the step and other versions need half of it; information from a fiftieth:
    a healthy vLLM over two GPUs took 178 us a launch, 11 % of its step, on a busy host (tests/data/live).

    Bad at: a launch that waits because the queue of launches is full looks slow and is not; hosts differ by a factor of
    two.
    """

    name: ClassVar[str] = "slow_launch"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        figures, dispatch = evidence.figures, evidence.recent.dispatch
        launches = evidence.recent.timing.graph_launch_call
        if launches is None or launches.count < MIN_LAUNCHES or figures.launch_us is None:
            return Blind(self.name, "graph launches were not timed")
        # The median: a full queue of launches makes some of them wait, and a slow launch is slow every time.
        launch_us = (launches.quantile(0.5) or 0.0) / 1000
        nodes = dispatch.graph_nodes / dispatch.live_graphs if dispatch.graph_nodes and dispatch.live_graphs else 0.0
        usual_us = USUAL_US + NODE_US * nodes
        elsewhere_us = evidence.peers.elsewhere.get("launch_us") if evidence.peers is not None else None
        slower_than_versions = elsewhere_us is not None and launch_us >= TIMES_ELSEWHERE * elsewhere_us
        share = _share(launch_us, figures.step_us, dispatch.replays, figures.steps)
        if share < INFO_SHARE or not (slower_than_versions or launch_us >= TIMES_USUAL * usual_us):
            return Healthy(self.name, f"a graph launch takes the host {launch_us:.1f} us")
        severity: Severity = "warn" if slower_than_versions and share >= WARN_SHARE else "info"
        other = f"; other versions need {elsewhere_us:.1f} us" if slower_than_versions else ""
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"A graph launch takes the host {launch_us:.0f} us, {readings.percent(share)} of the step{other}",
            evidence=(
                EvidenceItem("host time of a graph launch, median", round(launch_us, 1), "us", evidence.recent.origin),
                EvidenceItem("usual for a graph of this size", round(usual_us, 1), "us", "published"),
                EvidenceItem("nodes of a graph", round(nodes), "", evidence.recent.origin),
                *(
                    (EvidenceItem("other versions of this service", round(elsewhere_us, 1), "us", "cohorts"),)
                    if elsewhere_us is not None
                    else ()
                ),
            ),
            causes=_causes(evidence, slower_than_versions),
            remedy="Compare driver and library versions, try those before; look for tools attached to the driver.",
            is_fault=severity == "warn",
        )


def _share(launch_us: float, step_us: float | None, replays: int | None, steps: int) -> float:
    if step_us is None or not steps:
        return 0.0
    return min(1.0, launch_us * (replays or steps) / steps / step_us)


def _causes(evidence: Evidence, slower_than_versions: bool) -> tuple[Cause, ...]:
    found = []
    if slower_than_versions and evidence.fingerprint is not None:
        p = evidence.fingerprint
        told = ", ".join(f"{n} {v}" for n, v in (("driver", p.driver), ("CUDA", p.cuda), ("torch", p.torch)) if v)
        found.append(Cause(f"this version launches slower ({told})", 0.8, "cohorts with other fingerprints"))
    found.append(Cause("a profiler or another tool is attached to the driver, or the host is slow", 0.4, "launch time"))
    return tuple(found)
