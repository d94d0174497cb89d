"""Fleets put together from recordings: each replica is a recorded form of a decode step, at its own speed and load.

A replica's windows take step time and the spread of it from the recording's timed blocks, kernels from its trace.
Replicas of one form differ by a few per cent, as hosts do. Everything comes from a seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import reduce

from detectors.live import MS, SECOND
from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.merging import merge_records
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.window import Dispatch, Timing, TracedWork, Window, Workload
from replaywatch.detectors.evidence import Evidence, gather
from replaywatch.detectors.judge import judge
from score.cases import with_peers
from score.corpus import Recorded
from score.situation import Situation

H200 = Fingerprint(gpu_model="NVIDIA H200", driver="580.159.04", torch="2.11.0", engine="vllm", engine_version="0.25.1")
HEALTHY, OFF, PARTIAL = "decoder-replay-h2048-l22-b4-k512", "decoder-eager-h2048-l22-b4-k512", "partial-l22-b4-70pct"
MODES = {HEALTHY: "full", OFF: "eager", PARTIAL: "piecewise"}
HOST_SPREAD = 0.03
TRACED_NS = 100 * MS
# What one more sequence adds to a replayed step. Source: M15b's shape, 1.54 ms at batch 1 and 2.15 at 48.
LOAD_SHARE = 0.0084
FAULTS = frozenset({"disabled", "partial_coverage", "odd_one_out"})


@dataclass(frozen=True)
class Form:
    """A recorded way to run a step. `spread` is relative, of the step time between blocks."""

    step_ms: float
    spread: float
    traced: TracedWork
    mode: str

    @property
    def is_off(self) -> bool:
        """Whether no graph is used."""
        return self.mode == "eager"


@dataclass(frozen=True)
class Replica:
    """One replica of a fleet. `slowness` scales its steps and its device's work."""

    form: Form
    pod: str
    fingerprint: Fingerprint = H200
    batch: int = 4
    slowness: float = 1.0
    is_faulty: bool = False


def forms(recorded: dict[str, Recorded]) -> dict[str, Form]:
    """The recorded forms by the start of their names."""
    made = {}
    for start in (HEALTHY, OFF, PARTIAL):
        one = next(r for name, r in recorded.items() if name.startswith(start))
        assert one.window.traced is not None
        made[start] = Form(one.step_us / 1000, max(0.005, one.spread), _stretch(one.window.traced), MODES[start])
    return made


def _stretch(work: TracedWork) -> TracedWork:
    """As many clean steps as a stretch of the probe's usual length holds; the recordings hold two or three."""
    steps = max(work.steps, int(TRACED_NS / (work.span_ns / work.steps)))
    return reduce(merge_records, [work] * (steps // work.steps))


def evidence_of(replica: Replica, rng: random.Random, windows: int) -> Evidence:
    """Two minutes of a replica in some windows."""
    length_ns = 120 * SECOND // windows
    host = rng.lognormvariate(0, HOST_SPREAD)
    made = [_window(replica, rng, host, i * length_ns, length_ns) for i in range(windows)]
    off = replica.form.is_off
    config = EngineConfig(
        engine="vllm", requested_mode="FULL", resolved_mode="NONE" if off else "FULL", graphs_enabled=not off
    )
    return replace(gather(made), fingerprint=replica.fingerprint, config=config)


def _window(replica: Replica, rng: random.Random, host: float, start_ns: int, length_ns: int) -> Window:
    form = replica.form
    growth = 1 + LOAD_SHARE * (replica.batch - 4)
    step_ns = form.step_ms * MS * host * replica.slowness * growth * rng.lognormvariate(0, form.spread)
    steps = max(1, int(length_ns / step_ns))
    return Window(
        workload=Workload(pod=replica.pod, engine="vllm", phase="decode", model_name="decoder-22"),
        start_ns=start_ns,
        end_ns=start_ns + length_ns,
        origin="probe",
        dispatch=Dispatch(steps={form.mode: steps}, batch_sizes={replica.batch: steps}),
        timing=Timing(step_period=_times(step_ns, steps, rng)),
        traced=_scaled(form.traced, replica.slowness) if start_ns % (60 * SECOND) == 0 else None,
    )


def _times(mean_ns: float, count: int, rng: random.Random) -> Histogram:
    builder = HistogramBuilder()
    part = max(1, count // 8)
    for start in range(0, count, part):
        builder.add(int(mean_ns * rng.lognormvariate(0, 0.02)), min(part, count - start))
    return builder.build()


def _scaled(work: TracedWork, slowness: float) -> TracedWork:
    """The same step on a slower device: longer kernels, the same gaps."""
    if slowness == 1.0:
        return work
    more = int(work.busy_ns * (slowness - 1))
    total = int(work.total_busy_ns * (slowness - 1))
    return replace(
        work,
        busy_ns=work.busy_ns + more,
        kernel_ns=int(work.kernel_ns * slowness),
        span_ns=work.span_ns + more,
        span_sq_ns2=(work.span_ns + more) ** 2 / max(1, work.steps),
        total_busy_ns=work.total_busy_ns + total,
        total_span_ns=work.total_span_ns + total,
    )


def fleets(known: dict[str, Form]) -> dict[str, list[Replica]]:
    """The fleets by what is going on in them."""
    healthy, off, partial = known[HEALTHY], known[OFF], known[PARTIAL]
    older, newer = H200, replace(H200, engine_version="0.26.0")
    small = replace(H200, gpu_model="NVIDIA L40S")

    def many(form: Form, n: int, start: int = 0, **fields: object) -> list[Replica]:
        return [Replica(form, f"pod-{start + i}", **fields) for i in range(n)]  # type: ignore[arg-type]

    swinging = [Replica(healthy, f"pod-{i}", batch=1 + (i * 37) % 64) for i in range(39)]
    return {
        "healthy, 40 replicas": many(healthy, 40),
        "one of 40 without graphs": [*many(healthy, 39), Replica(off, "odd", is_faulty=True)],
        "one of 1,000 without graphs": [*many(healthy, 999), Replica(off, "odd", is_faulty=True)],
        "one of 40 partly captured": [*many(healthy, 39), Replica(partial, "odd", is_faulty=True)],
        "one of 40 on a slow device": [*many(healthy, 39), Replica(healthy, "odd", slowness=1.4, is_faulty=True)],
        "half of 40 without graphs": [*many(healthy, 20), *many(off, 20, 20, is_faulty=True)],
        "all of 40 without graphs": many(off, 40, is_faulty=True),
        "two GPU models, healthy": [*many(healthy, 25), *many(healthy, 15, 25, fingerprint=small, slowness=2.6)],
        "two GPU models, one odd in each": [
            *many(healthy, 24),
            Replica(off, "odd-h200", is_faulty=True),
            *many(healthy, 14, 25, fingerprint=small, slowness=2.6),
            Replica(healthy, "odd-l40s", fingerprint=small, slowness=3.9, is_faulty=True),
        ],
        "rolling upgrade, healthy": [*many(healthy, 20, fingerprint=older), *many(healthy, 20, 20, fingerprint=newer)],
        "rolling upgrade that loses graphs": [
            *many(healthy, 20, fingerprint=older),
            *many(off, 20, 20, fingerprint=newer, is_faulty=True),
        ],
        "loads from 1 to 64, one odd": [*swinging, Replica(healthy, "odd", batch=20, slowness=1.5, is_faulty=True)],
    }


def situations(known: dict[str, Form], seed: int = 7) -> list[Situation]:
    """Every replica of every fleet, judged with its peers."""
    made = []
    for name, replicas in fleets(known).items():
        rng = random.Random(f"{seed}/{name}")
        windows = 2 if len(replicas) > 100 else 8
        members = with_peers([evidence_of(r, rng, windows) for r in replicas])
        made += [_situation(name, r, e) for r, e in zip(replicas, members, strict=True)]
    return made


def _situation(fleet: str, replica: Replica, evidence: Evidence) -> Situation:
    judgement = judge(evidence)
    said = {f.detector for f in judgement.findings} & FAULTS
    # Any of the three votes may speak; which of them it was is what `expected` keeps.
    expected = frozenset(said or {"odd_one_out"}) if replica.is_faulty else frozenset()
    allowed = FAULTS if replica.is_faulty else frozenset[str]()
    return Situation(f"{fleet}/{replica.pod}", "fleet", judgement, expected, allowed, group=fleet)
