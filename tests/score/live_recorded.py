"""Faults that began in live processes on a GPU, as the agent shipped them (tests/data/live/situations.json).

Each is followed as a collector follows it, window by window, through memory and all detectors. What should be said is
what the recording's maker wrote down before; a recording ends 14 s after its fault began.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from replaywatch.collector.memory import WorkloadMemory
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Finding
from replaywatch.contract.wire import decode
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import Judgement, judge
from score.engines import FOLDER
from score.live_faults import HORIZON_NS, POLICY
from score.situation import Situation, is_alarm

# Beside what its maker expected: eager steps take three times as long as the replays that they alternate with.
ALSO = {"both_ways": ("partial_coverage",)}


@dataclass(frozen=True)
class Followed:
    """A recording, judged as a whole; `seconds` from the fault to the second alarm of `sudden` in a row, if it came."""

    situation: Situation
    is_sudden: bool
    seconds: float | None


def followed() -> Iterator[Followed]:
    """Every recording that is there."""
    labels = FOLDER / "situations.json"
    for label in json.loads(labels.read_text())[1:] if labels.exists() else ():
        judged = list(_judgements(label["name"]))
        fault_ns = int(label["fault_ns"]) if label["is_sudden"] else 0
        found: dict[tuple[str, str], Finding] = {}
        seconds, hot = None, 0
        for end_ns, judgement in judged:
            for finding in judgement.findings:
                if end_ns > fault_ns or is_alarm(finding):
                    found[finding.detector, finding.severity] = finding
            alarmed = any(f.detector == "sudden" and is_alarm(f) for f in judgement.findings)
            hot = hot + 1 if alarmed and end_ns > fault_ns else 0
            if hot == POLICY.open_ticks and seconds is None:
                seconds = (end_ns - fault_ns) / 1e9
        whole = replace(judged[-1][1], findings=tuple(found.values()))
        yield Followed(
            Situation(label["name"], "live", whole, frozenset((*label["expected"], *ALSO.get(label["name"], ())))),
            bool(label["is_sudden"]),
            seconds,
        )


def _judgements(name: str) -> Iterator[tuple[int, Judgement]]:
    """The judgement after each window. Shape: (end of the window, Unix nanoseconds, judgement)."""
    fingerprints: dict[str, Fingerprint] = {}
    configs: dict[str, EngineConfig] = {}
    memories: dict[str, WorkloadMemory] = {}
    for serial, line in enumerate(gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines()):
        batch = decode(line)
        fingerprints.update(batch.fingerprints)
        configs.update(batch.configs)
        for window in sorted(batch.windows, key=lambda w: w.end_ns):
            key = window.workload.key
            memory = memories.setdefault(key, WorkloadMemory(key, window.workload, 0, 0))
            memory.absorb(window, window.end_ns, serial)
            memory.settle(HORIZON_NS)
            recent, lifetime, sudden = memory.recent, memory.lifetime, memory.sudden
            assert recent is not None
            assert lifetime is not None
            evidence = Evidence(
                workload=memory.workload, recent=recent, lifetime=lifetime, sudden=sudden,
                config=configs.get(lifetime.config_id or ""),
                fingerprint=fingerprints.get(lifetime.fingerprint_id or ""),
                previous_fingerprint=fingerprints.get(sudden.previous_fingerprint_id or ""),
            )  # fmt: skip
            yield window.end_ns, judge(evidence)
