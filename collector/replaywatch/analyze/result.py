"""What `replaywatch analyze` says of one workload, and of a whole run; the source of terminal, JSON and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Severity, severity_rank
from replaywatch.contract.window import Window
from replaywatch.detectors.evidence import Evidence, gather
from replaywatch.detectors.judge import Judgement, judge
from replaywatch.sources.recording import Recording, RecordingKind, StepPicture


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload of one file, judged."""

    source: str
    kind: RecordingKind
    judgement: Judgement
    window: Window
    config: EngineConfig | None = None
    fingerprint: Fingerprint | None = None
    picture: StepPicture | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that could not be judged, with one sentence that says why and what to do."""

    source: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """All files of one run."""

    results: tuple[Result, ...]
    unreadable: tuple[Unreadable, ...] = ()

    def exit_status(self, fail_on: Severity) -> int:
        """0 nothing at or above `fail_on`; 1 findings at or above it; 2 something could not be judged.

        A finding outranks what could not be judged. `fail_on` "none" never fails for findings.
        """
        worst = max((severity_rank(r.judgement.severity) for r in self.results), default=0)
        has_fault = any(r.judgement.verdict == "finding" for r in self.results)
        if fail_on != "none" and has_fault and worst >= severity_rank(fail_on):
            return 1
        unjudged = any(r.judgement.verdict in ("blind", "warming_up") for r in self.results)
        return 2 if self.unreadable or unjudged or not self.results else 0


def judge_recording(recording: Recording) -> tuple[Result, ...]:
    """Every workload of a recording, judged; worst first."""
    by_key: dict[str, list[Window]] = {}
    for window in recording.windows:
        by_key.setdefault(window.workload.key, []).append(window)
    results = [_judge_one(recording, key, windows) for key, windows in by_key.items()]
    return tuple(sorted(results, key=lambda r: -severity_rank(r.judgement.severity)))


def _judge_one(recording: Recording, key: str, windows: Sequence[Window]) -> Result:
    evidence: Evidence = gather(
        windows, fingerprints=recording.fingerprints, configs=recording.configs, is_recording=True
    )
    return Result(
        source=recording.source,
        kind=recording.kind,
        judgement=judge(evidence),
        window=evidence.lifetime,
        config=evidence.config,
        fingerprint=evidence.fingerprint,
        picture=recording.pictures.get(key),
    )


def join_reports(reports: Sequence[Report]) -> Report:
    """Several reports as one, worst result first."""
    results = [r for report in reports for r in report.results]
    results.sort(key=lambda r: -severity_rank(r.judgement.severity))
    return replace(Report(tuple(results)), unreadable=tuple(u for report in reports for u in report.unreadable))
