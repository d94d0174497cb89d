"""One replica does worse than its peers (R2), and the vote of the peers for other detectors."""

from __future__ import annotations

from typing import ClassVar

from replaywatch.contract.verdict import (
    Blind,
    Cause,
    Estimate,
    EvidenceItem,
    Finding,
    Healthy,
    Severity,
    Verdict,
    severity_rank,
)
from replaywatch.detectors import causes, readings
from replaywatch.detectors.device_clock import SLOW_CLOCK_RATIO, clock_ratio
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.peers import COMPARED, MIN_PEERS, WORDS, Deviation, deviations, is_odd
from replaywatch.detectors.voting import peers_vote


class OddOneOut:
    """A replica is slower than peers with the same fingerprint at the same load, or replays less than they do.

    A page only where it also replays less than its peers; otherwise graphs are not what brings the time back.

    Bad at: a fault that half of the peers or all of them have; peers whose requests differ in what the figures do not
    show (context length); fewer than five peers.
    """

    name: ClassVar[str] = "odd_one_out"

    def judge(self, evidence: Evidence) -> Verdict:
        """See the class."""
        peers = evidence.peers
        if peers is None or peers.n < MIN_PEERS:
            return Blind(self.name, f"{MIN_PEERS} peers with the same fingerprint are needed")
        figures = evidence.figures
        if figures.steps < readings.MIN_LIVE_STEPS:
            return Blind(self.name, "too few recent steps to compare with the peers")
        compared = deviations(peers, figures)
        if not compared:
            return Blind(self.name, "the peers cannot be compared: other loads, or they differ among themselves")
        odd = tuple(d for d in compared if is_odd(d, peers.n))
        estimate = _estimate(odd)
        severity = _severity(odd, estimate)
        if severity == "none":
            return Healthy(self.name, f"like its {peers.n - 1} peers")
        return Finding(
            detector=self.name,
            subject=evidence.workload.key,
            severity=severity,
            title=f"Unlike its {peers.n - 1} peers: {'; '.join(_told(d) for d in odd)}",
            evidence=(
                *(i for d in odd for i in _items(d)),
                EvidenceItem("peers", peers.n - 1, "", "cohort"),
                *(readings.estimate_items(estimate) if estimate else ()),
            ),
            estimate=estimate,
            causes=_causes(evidence, odd),
            remedy="Compare configuration and log with a peer's; if they agree, look at host and device.",
            votes=(causes.intent_vote(evidence), peers_vote(evidence)),
        )


def _estimate(odd: tuple[Deviation, ...]) -> Estimate | None:
    """What the replica loses against its peers' step time; None where its steps are not slower."""
    slow = next((d for d in odd if d.figure == "step_us"), None)
    if slow is None:
        return None
    return Estimate(
        ratio=1 - slow.expected / slow.value,
        low=max(0.0, 1 - (slow.expected + 2 * slow.sigma) / slow.value),
        high=min(1.0, max(0.0, 1 - (slow.expected - 2 * slow.sigma) / slow.value)),
        step_us=slow.value,
        method="step time of the peers",
        is_recoverable=any(_is_about_graphs(d) for d in odd),
    )


def _severity(odd: tuple[Deviation, ...], estimate: Estimate | None) -> Severity:
    if not odd:
        return "none"
    if estimate is None:
        return "info"
    if estimate.is_recoverable:
        return max(estimate.severity, "info", key=severity_rank)
    return max("info", min(estimate.severity, "warn", key=severity_rank), key=severity_rank)


def _is_about_graphs(deviation: Deviation) -> bool:
    return deviation.figure in ("unreplayed_ratio", "coverage")


def _amount(deviation: Deviation, value: float) -> str:
    return readings.percent(value) if COMPARED[deviation.figure][1] else f"{value:.0f} us"


def _told(deviation: Deviation) -> str:
    value, expected = _amount(deviation, deviation.value), _amount(deviation, deviation.expected)
    return f"{WORDS[deviation.figure]} {value} against {expected}"


def _items(deviation: Deviation) -> tuple[EvidenceItem, ...]:
    unit = "ratio" if COMPARED[deviation.figure][1] else "us"
    word = WORDS[deviation.figure]
    return (
        EvidenceItem(word, round(deviation.value, 4), unit, "recent windows"),
        EvidenceItem(f"{word}, median of peers", round(deviation.expected, 4), unit, "cohort"),
        EvidenceItem(f"{word}, robust z", round(deviation.z, 1), "", "cohort"),
    )


def _causes(evidence: Evidence, odd: tuple[Deviation, ...]) -> tuple[Cause, ...]:
    found = list(causes.eager_causes(evidence)) if any(_is_about_graphs(d) for d in odd) else []
    device = evidence.recent.device
    if device is not None and device.processes is not None and device.processes > 1:
        found.append(Cause(f"{device.processes} processes compute on its device", 0.7, "NVML"))
    slow_clock = clock_ratio(evidence.recent)
    if slow_clock is not None and slow_clock < SLOW_CLOCK_RATIO:
        found.append(Cause(f"its device runs at {readings.percent(slow_clock)} of its clock", 0.7, "NVML"))
    if any(d.figure == "launch_us" for d in odd):
        found.append(Cause("its host is slower, or kept busy by something else", 0.6, "host time of graph launches"))
    return tuple(sorted(found, key=lambda c: -c.weight)[:5])
