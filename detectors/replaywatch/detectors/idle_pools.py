"""Memory that graph pools hold and no replay uses."""

from __future__ import annotations

from typing import ClassVar, Final

from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Severity, Verdict
from replaywatch.detectors.evidence import Evidence

TOLD_BYTES: Final = 128 << 20
TOLD_SHARE: Final = 0.25


class IdlePools:
    """Pools of graphs that are never replayed hold 128 MiB or more, and a quarter of all graph memory.

    A warning where a capture failed, since its pool stays for as long as the process lives; information otherwise.

    Bad at: sizes that traffic has not reached yet hold memory for a good reason.
    """

    name: ClassVar[str] = "idle_pools"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        memory, dispatch = evidence.lifetime.memory, evidence.lifetime.dispatch
        if memory.unused_bytes is None or memory.pool_bytes is None:
            return Blind(self.name, "which pools are used is not known")
        unused, failed = memory.unused_bytes, (dispatch.captures or {}).get("failed", 0)
        if unused < TOLD_BYTES or unused < TOLD_SHARE * memory.pool_bytes:
            return Healthy(self.name, f"graphs that are not replayed hold {unused / 2**20:.0f} MiB")
        severity: Severity = "warn" if failed else "info"
        causes = [Cause(f"{failed} captures failed and kept their pools", 0.8, "failed captures")] if failed else []
        causes.append(Cause("captured sizes that no batch has had", 0.5, "pools without replays"))
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"{unused / 2**30:.2f} GiB of graph memory belong to graphs that are never replayed",
            evidence=(
                EvidenceItem("memory of graphs never replayed", unused, "bytes", evidence.lifetime.origin),
                EvidenceItem("graph memory", memory.pool_bytes, "bytes", evidence.lifetime.origin),
                EvidenceItem("failed captures", failed, "", evidence.lifetime.origin),
            ),
            causes=tuple(causes),
            remedy="Drop the graph and its pool after a failed capture; capture only sizes that are served.",
            is_fault=bool(failed),
        )
