"""What every workload's peers show: figures noted as windows come, cohorts made from them once a tick."""

from __future__ import annotations

from dataclasses import dataclass, field

from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.peers import CohortSummary, Member, cohort_key, family_key, summaries


@dataclass(slots=True)
class PeerBook:
    """Figures of workloads by id; used by the detection thread only. A workload that is silent is no peer."""

    _members: dict[str, tuple[Member, int]] = field(default_factory=dict)
    _cohorts: dict[str, CohortSummary] = field(default_factory=dict)

    def note(self, key: str, evidence: Evidence, seen_ns: int) -> None:
        """Take a workload's recent figures; forget them where nobody can be its peer."""
        cohort = cohort_key(evidence.fingerprint, evidence.config, evidence.workload)
        if cohort is None:
            self._members.pop(key, None)
            return
        family = family_key(evidence.fingerprint, evidence.config, evidence.workload)
        self._members[key] = Member(cohort, family, evidence.figures), seen_ns

    def forget(self, key: str) -> None:
        """Drop a workload that is gone."""
        self._members.pop(key, None)

    def make_cohorts(self, since_ns: int) -> None:
        """Make all cohorts from the workloads that were seen since some time."""
        self._cohorts = summaries(member for member, seen_ns in self._members.values() if seen_ns >= since_ns)

    def peers_of(self, key: str) -> CohortSummary | None:
        """What a workload's peers showed when cohorts were last made; None where it has none."""
        known = self._members.get(key)
        return self._cohorts.get(known[0].cohort) if known is not None else None
