"""A labelled situation: what was judged, what should have been said, and what may be said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from replaywatch.contract.verdict import Finding, severity_rank
from replaywatch.detectors.judge import Judgement


@dataclass(frozen=True)
class Situation:
    """`expected` detectors should each speak, `allowed` may; any other fault of a warning or more is a false alarm.

    `truth` is the measured recoverable share, where one was measured while the host kept its speed.
    """

    name: str
    source: str
    judgement: Judgement
    expected: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    split: str = ""
    rho: float | None = None
    truth: float | None = None
    group: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether anything should be said."""
        return bool(self.expected)

    @property
    def spoke(self) -> frozenset[str]:
        """Detectors that found something, whatever its severity."""
        return frozenset(f.detector for f in self.judgement.findings)

    @property
    def alarms(self) -> frozenset[str]:
        """Detectors that found a fault of a warning or more."""
        return frozenset(f.detector for f in self.judgement.findings if is_alarm(f))

    @property
    def false_alarms(self) -> frozenset[str]:
        """Alarms that nobody should have raised."""
        return self.alarms - self.expected - self.allowed

    @property
    def is_found(self) -> bool:
        """Whether one of the expected detectors spoke."""
        return bool(self.expected & self.spoke)


def is_alarm(finding: Finding) -> bool:
    """Whether a finding opens an incident under the default policy."""
    return finding.is_fault and severity_rank(finding.severity) >= severity_rank("warn")


@dataclass
class Count:
    """True positives, false negatives and false positives of one detector."""

    tp: int = 0
    fn: int = 0
    fp: int = 0

    @property
    def precision(self) -> float | None:
        """Share of what was said that was right."""
        said = self.tp + self.fp
        return self.tp / said if said else None

    @property
    def recall(self) -> float | None:
        """Share of what was to be said that was said."""
        due = self.tp + self.fn
        return self.tp / due if due else None


def count(situations: Iterable[Situation]) -> dict[str, Count]:
    """Counts by detector."""
    counts: dict[str, Count] = {}
    for s in situations:
        for name in s.expected:
            one = counts.setdefault(name, Count())
            if name in s.spoke:
                one.tp += 1
            else:
                one.fn += 1
        for name in s.false_alarms:
            counts.setdefault(name, Count()).fp += 1
    return counts


def total(counts: Mapping[str, Count]) -> Count:
    """All detectors together."""
    return Count(*(sum(getattr(c, part) for c in counts.values()) for part in ("tp", "fn", "fp")))


def quantile(values: Iterable[float], q: float) -> float | None:
    """The smallest value that at least a share q of the values does not exceed; None for none."""
    ordered = sorted(values)
    return ordered[max(0, ceil(q * len(ordered)) - 1)] if ordered else None
