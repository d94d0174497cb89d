"""Sudden faults in a live service, and whole days of health, as windows made from measured step times and spreads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from detectors.live import DEVICE, LENGTH_S, Fault, Moment, slower, stream, swing
from replaywatch.collector.hysteresis import QUIET, Hold, Policy, sight_of, step
from replaywatch.collector.memory import WorkloadMemory
from replaywatch.contract.verdict import Finding
from replaywatch.contract.window import Window
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import judge
from replaywatch.detectors.sudden import Sudden
from replaywatch.detectors.sudden_state import SuddenState, advance
from score.situation import is_alarm

CALM_S, FAULT_S = 7200.0, 120.0
HORIZON_NS = 120 * 10**9
DAY_S = 86_400.0
POLICY = Policy()


def _stopped(moment: Moment) -> Moment:
    return replace(moment, pause_ratio=0.5)


def _contended(moment: Moment) -> Moment:
    return replace(slower(1.45)(moment), device=replace(DEVICE, processes=2))


def _throttled(moment: Moment) -> Moment:
    device = replace(DEVICE, sm_clock_hz=1_400_000_000, throttle_reasons=("thermal",))
    return replace(slower(1.35)(moment), device=device)


def _busy_host(moment: Moment) -> Moment:
    return replace(moment, step_ms=moment.step_ms + 1.2, gap_us=1100.0, launch_us=60.0)


def _disabled(moment: Moment) -> Moment:
    return replace(moment, step_ms=moment.step_ms * 3.5, eager_ratio=1.0, config_id="c2")


def _fallen(moment: Moment) -> Moment:
    return replace(moment, step_ms=moment.step_ms * 1.8, eager_ratio=0.5)


def _recording(moment: Moment) -> Moment:
    return replace(moment, step_ms=moment.step_ms * 1.5, captures=25)


# Each kind with what it is; times of the first two are those of the usual injections (SIGSTOP, a kernel hog).
FAULTS: dict[str, Fault] = {
    "host stopped half of the time": _stopped,
    "another process on the device": _contended,
    "device throttled": _throttled,
    "host busy, late launches": _busy_host,
    "graphs switched off": _disabled,
    "half of the steps fall back": _fallen,
    "recapturing": _recording,
    "steps 1.3 times as long": slower(1.3),
    "steps 1.2 times as long": slower(1.2),
    "steps 1.15 times as long": slower(1.15),
}


def steady(_second: float, rng: random.Random) -> float:
    """A service with a level load."""
    return min(64.0, max(1.0, 24 * rng.lognormvariate(0, 0.15)))


LOADS: dict[str, Callable[[float, random.Random], float]] = {"level": steady, "swinging": swing}


@dataclass(frozen=True)
class Run:
    """One fault in one service. `calm` windows come before `faulty` ones."""

    kind: str
    load: str
    seed: int
    calm: tuple[Window, ...]
    faulty: tuple[Window, ...]


def runs(seeds: int, noise: float) -> Iterator[Run]:
    """Every kind of fault under every load, some seeds each."""
    for load, batch in LOADS.items():
        for seed in range(seeds):
            calm: tuple[Window, ...] = ()
            for kind, fault in FAULTS.items():
                windows = tuple(
                    stream(CALM_S + FAULT_S, seed, faults={CALM_S: fault}, batch=batch, start_s=6 * 3600, noise=noise)
                )
                cut = int(CALM_S / LENGTH_S)
                calm = calm or windows[:cut]
                yield Run(kind, load, seed, calm, windows[cut:])


def seconds_to_find(run: Run, learnt: SuddenState) -> float | None:
    """Seconds of windows from the fault's start until the detector alarms for the second window in a row."""
    state, hot = learnt, 0
    for i, window in enumerate(run.faulty):
        state = advance(state, window)
        verdict = Sudden().judge(Evidence(workload=window.workload, recent=window, lifetime=window, sudden=state))
        hot = hot + 1 if isinstance(verdict, Finding) and is_alarm(verdict) else 0
        if hot == POLICY.open_ticks:
            return (i + 1) * LENGTH_S
    return None


def learn_from(windows: tuple[Window, ...]) -> SuddenState:
    """What calm windows teach."""
    return reduce(advance, windows, SuddenState())


def healthy_day(seed: int, noise: float, hours: float = 24.0) -> tuple[list[Window], list[tuple[float, str, str]]]:
    """A day of swings through memory, all detectors and the incidents' hysteresis; windows, and incidents that opened.

    Shape of an incident: (hour, detector, severity).
    """
    windows = list(stream(hours * 3600, seed, noise=noise))
    memory = WorkloadMemory("day", windows[0].workload, 0, 0)
    holds: dict[str, Hold] = {}
    opened: list[tuple[float, str, str]] = []
    for serial, window in enumerate(windows):
        memory.absorb(window, window.end_ns, serial)
        memory.settle(HORIZON_NS)
        recent, lifetime = memory.recent, memory.lifetime
        assert recent is not None
        assert lifetime is not None
        judgement = judge(Evidence(workload=window.workload, recent=recent, lifetime=lifetime, sudden=memory.sudden))
        for name in {f.detector for f in judgement.findings} | holds.keys():
            hold, change = step(holds.get(name, QUIET), sight_of(judgement, name), POLICY)
            holds[name] = hold
            if change == "opened":
                opened.append((serial * LENGTH_S / 3600, name, hold.severity))
    return windows, opened
