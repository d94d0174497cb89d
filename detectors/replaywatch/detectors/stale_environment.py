"""The environment changed under graphs that were not captured again (cache key)."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, Final

from replaywatch.contract.snapshot import Fingerprint
from replaywatch.contract.verdict import Blind, Cause, EvidenceItem, Finding, Healthy, Verdict
from replaywatch.detectors.evidence import Evidence

_NOT_KNOWN: Final = (None, "unknown")


class StaleEnvironment:
    """Device, driver, libraries or code of a process changed, and it goes on replaying graphs captured before.

    What a graph was captured for is the whole fingerprint; a value that only became known is no change.

    Bad at: kernels, shapes and pointers are not part of the fingerprint; minor releases of a driver do no harm.
    """

    name: ClassVar[str] = "stale_environment"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        state, before, now = evidence.sudden, evidence.previous_fingerprint, evidence.fingerprint
        if state is None or now is None:
            return Blind(self.name, "what the process runs on is not known")
        changed = _changed(before, now) if before is not None else []
        if not changed or state.captures_since or not state.replays_since:
            return Healthy(self.name, "nothing changed under the graphs, or they were captured again")
        told = ", ".join(f"{name.replace('_', ' ')} {a} to {b}" for name, a, b in changed)
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity="warn",
            title=f"Graphs are replayed that were captured before a change: {told}",
            evidence=(
                *(EvidenceItem(name.replace("_", " "), f"{a} to {b}", "", "fingerprint") for name, a, b in changed),
                EvidenceItem("replays since the change", state.replays_since, "", "windows"),
                EvidenceItem("captures since the change", state.captures_since, "", "windows"),
            ),
            causes=(Cause(f"{changed[0][0].replace('_', ' ')} changed while the process ran", 0.9, "fingerprint"),),
            remedy="Capture again (restart the process): results and speed of older graphs are not to be trusted.",
        )


def _changed(before: Fingerprint, now: Fingerprint) -> list[tuple[str, str, str]]:
    """Fields that were known before and are different now."""
    pairs = ((f.name, getattr(before, f.name), getattr(now, f.name)) for f in fields(Fingerprint))
    return [(name, str(a), str(b)) for name, a, b in pairs if a not in _NOT_KNOWN and b not in _NOT_KNOWN and a != b]
