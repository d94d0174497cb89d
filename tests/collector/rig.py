"""The detection side of a collector without the web: a store, a writer, a clock set by hand, a judge that is told."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from collector.material import SECOND, healthy_window, workload
from replaywatch.collector.arrival import Limits
from replaywatch.collector.detection import Detection, DetectionSettings
from replaywatch.collector.hysteresis import Policy
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.incidents import Incident, Wanted, find_incidents
from replaywatch.collector.ingest import StoredBatch, prepare
from replaywatch.collector.recording import Telling
from replaywatch.collector.store import Store
from replaywatch.collector.webhook import Links, message
from replaywatch.collector.writer import Writer
from replaywatch.contract.snapshot import Fingerprint
from replaywatch.contract.verdict import Blind, Estimate, Finding, Healthy, Severity
from replaywatch.contract.window import Window, Workload
from replaywatch.contract.wire import Batch, encode
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import Judgement

LIMITS = Limits(1 << 20, 1 << 22)
WHO = workload("pod-a")
SETTINGS = DetectionSettings(
    horizon_ns=120 * SECOND,
    stale_ns=60 * SECOND,
    gone_ns=3600 * SECOND,
    checkpoint_ns=30 * SECOND,
    agent_silent_ns=300 * SECOND,
    workloads_max=100,
    policy=Policy(),
)


class ManualClock:
    """Unix nanoseconds that move only when told to."""

    def __init__(self, now_ns: int = 1_800_000_000 * SECOND) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)


class ToldJudge:
    """Says of every workload what it was told: a severity, healthy, or blind. Keeps the evidence that it saw."""

    def __init__(self) -> None:
        self.says: Severity | str = "healthy"
        self.seen: list[Evidence] = []

    def __call__(self, evidence: Evidence) -> Judgement:
        self.seen.append(evidence)
        who = evidence.workload
        if self.says == "raises":
            raise OverflowError("figures beyond all bounds")
        if self.says == "blind":
            return Judgement(who, "blind", "none", (), (), (), (Blind("disabled", "no tracer"),), None)
        if self.says == "healthy":
            return Judgement(who, "healthy", "none", (), (Healthy("disabled", "replayed"),), (), (), None)
        finding = made_finding(next(s for s in ("info", "warn", "page") if s == self.says))
        return Judgement(who, "finding", finding.severity, (finding,), (), (), (), finding.estimate)


def made_finding(severity: Severity) -> Finding:
    """A finding of a severity."""
    return Finding(
        detector="disabled",
        subject="pod-a",
        severity=severity,
        title="Graphs are off",
        evidence=(),
        estimate=Estimate(0.4, 0.35, 0.45, 12000.0, 7200.0),
        remedy="remove --enforce-eager",
    )


class Rig:
    """Feeds windows and ticks; `restart` begins again on the same store, as after a kill."""

    def __init__(self, store_url: str, *, links: Links | None = None) -> None:
        self.telling = Telling()
        self.clock = ManualClock()
        self.judge = ToldJudge()
        self.links = links or Links("http://collector.example")
        self._url = store_url
        self._keys = 0
        self._begin()

    def _begin(self) -> None:
        self.store = Store.open(self._url)
        self.writer = Writer(self.store, 64)
        self.writer.start()
        self.inbox = Inbox()
        telling = replace(self.telling, message=partial(message, self.links))
        self.detection = Detection(self.store, self.writer, self.inbox, self.judge, SETTINGS, self.clock, telling)

    def restart(self, *, cleanly: bool = False) -> None:
        """Stop, with or without a last checkpoint, and start anew."""
        if cleanly:
            self.detection.close()
        self.stop()
        self._begin()

    def stop(self) -> None:
        self.writer.close()
        self.store.close()

    def feed(
        self, *windows: Window, key: str | None = None, prints: Mapping[str, Fingerprint] | None = None
    ) -> StoredBatch:
        """Store a batch as the web side does. Shape: `prints` are fingerprints by id."""
        self._keys += 1
        batch = Batch(
            key=key or f"key-{self._keys}", sent_ns=self.clock(), windows=windows, fingerprints=dict(prints or {})
        )
        prepared = prepare(batch, self.clock(), body=encode(batch), is_gzip=False)
        return self.writer.offer_batch(prepared, self.inbox.put).result()

    def tick(self, says: str | None = None, *, ticks: int = 1, who: Workload = WHO) -> None:
        """Five seconds pass, a window comes, a tick runs; so many times."""
        for _ in range(ticks):
            if says is not None:
                self.judge.says = says
            self.clock.advance(5)
            self.feed(healthy_window(self.clock() - 5 * SECOND, random.Random(1), who))
            self.detection.tick()

    def quiet_tick(self, seconds: float) -> None:
        """Time passes without windows, and a tick runs."""
        self.clock.advance(seconds)
        self.detection.tick()

    def incidents(self, *states: str) -> list[Incident]:
        with self.store.session() as session:
            return find_incidents(session, Wanted(states=states))
