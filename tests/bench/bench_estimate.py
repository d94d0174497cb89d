"""The estimate against measured truth on the recorded corpus: one line a trace, then medians by split.

Truth is 1 - graph / observed step time, both measured in one process without any profiler (tests/corpus/README.md).
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from replaywatch.analyze.result import Result, judge_recording
from replaywatch.contract.verdict import severity_rank
from replaywatch.sources.reader import read

CORPUS = Path(__file__).parents[1] / "data" / "corpus"

# Their loss is not work that could be captured: padding shows in batch sizes, not in a kernel trace.
NOT_CAPTURE = ("replay-padding",)


@dataclass(frozen=True)
class Scored:
    """One trace: what was measured, what was said."""

    name: str
    mode: str
    split: str
    label: str
    truth: float
    observed_us: float
    result: Result
    allowed: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        estimate = self.result.judgement.estimate
        return estimate.ratio if estimate else None

    @property
    def error(self) -> float | None:
        return None if self.ratio is None else self.ratio - self.truth

    @property
    def is_alarm(self) -> bool:
        """Whether a fault at warn or above is said that the recording's makers did not allow for."""
        names = {"gap": "replay_gap"}
        allowed = {names.get(a, a) for a in self.allowed}
        return any(
            f.is_fault and severity_rank(f.severity) >= severity_rank("warn") and f.detector not in allowed
            for f in self.result.judgement.findings
        )

    @property
    def is_covered(self) -> bool:
        estimate = self.result.judgement.estimate
        return estimate is not None and estimate.low - 1e-9 <= self.truth <= estimate.high + 1e-9


def score_corpus(folder: Path = CORPUS) -> list[Scored]:
    """Every recording whose truth was measured while the host kept its speed, and whose loss is not an anomaly."""
    scored = []
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        item = json.loads(line)
        if "truth" not in item or not item["host_is_steady"] or item["family"] in NOT_CAPTURE:
            continue
        truth = item["truth"]
        results = judge_recording(read(folder / item["trace"]["file"]))
        mode = item["mode"] + ("" if item["annotated"] else " bare")
        scored.append(
            Scored(
                item["item"], mode, item["split"], item["label"], max(0.0, truth["rho"]), truth["observed_us"],
                results[0],
                tuple(item["expected_findings"] + item["allowed_findings"]),
            )
        )  # fmt: skip
    return scored


def main() -> int:
    """Print the table."""
    scored = score_corpus(Path(sys.argv[1]) if len(sys.argv) > 1 else CORPUS)
    for s in sorted(scored, key=lambda s: (s.split, s.truth)):
        e = s.result.judgement.estimate
        said = "none" if e is None else f"{e.ratio:5.3f} [{e.low:5.3f} {e.high:5.3f}] err {s.error:+.3f}"
        step = f"{(e.step_us or 0) / s.observed_us:4.2f}" if e else "-"
        work = s.result.window.traced
        traced = f"{work.span_ns / work.steps / 1000:8.0f}" if work and work.steps else "-"
        found = ",".join(f"{f.detector}:{f.severity}" for f in s.result.judgement.findings if f.is_fault)
        flag = " " if s.is_covered else "!"
        print(
            f"{s.split:8}{s.label:8}{s.name[:40]:41}{s.mode:14}{s.truth:6.3f} {said}{flag} obs {s.observed_us:8.0f} "
            f"traced {traced} step/obs {step} {found}"
        )
    for split in ("fit", "holdout"):
        errors = sorted(abs(s.error) for s in scored if s.split == split and s.error is not None)
        if errors:
            covered = sum(s.is_covered for s in scored if s.split == split and s.error is not None)
            print(
                f"{split}: {len(errors)} estimates, median error {statistics.median(errors):.3f}, "
                f"90th percentile {errors[int(0.9 * len(errors))]:.3f}, worst {errors[-1]:.3f}, "
                f"interval holds the truth {covered} times ({covered / len(errors):.0%})"
            )
    alarms = [
        s.name
        for s in scored
        if s.label == "control" and severity_rank(s.result.judgement.severity) >= severity_rank("warn")
    ]
    print(f"controls with a finding at warn or above: {len(alarms)} {alarms}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
