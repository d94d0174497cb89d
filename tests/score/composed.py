"""Situations composed from the corpus, for faults that nobody let happen while recording.

Step times, device times, kernels and idle are recorded ones; the fault is imposed on them, and each function says how.
For each there are controls in which the same is imposed where it does no harm. `composed_live` does so with what the
probe sent out of engines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from detectors.live import DEVICE, SECOND
from replaywatch.contract.device import DeviceState
from replaywatch.contract.histogram import Histogram, HistogramBuilder
from replaywatch.contract.snapshot import EngineConfig
from replaywatch.contract.window import Dispatch, Timing, Window, Workload
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.judge import judge
from score import fleets
from score.cases import with_peers
from score.corpus import Recorded
from score.situation import Situation

Recordings = Mapping[str, Recorded]
STEPS = 4000
NOBODY: frozenset[str] = frozenset()


def situations(recorded: Recordings) -> Iterator[Situation]:
    """Every composed situation, judged."""
    for compose in (both_ways, never_paid_back, planned, compiled, shared_devices):
        yield from compose(recorded)


def situation(
    name: str, evidence: Evidence, expected: frozenset[str] = NOBODY, allowed: frozenset[str] = NOBODY
) -> Situation:
    return Situation(name, "composed", judge(evidence), expected, allowed, group=name.split("/")[0])


def _find(recorded: Recordings, start: str) -> Recorded:
    return next(r for name, r in recorded.items() if name.startswith(start))


def _times(us: float, count: int) -> Histogram:
    builder = HistogramBuilder()
    builder.add(int(1000 * us), count)
    return builder.build()


def _window(name: str, seconds: float = 60.0, **fields: Any) -> Window:
    who = Workload(name=name, engine="torch")
    return Window(workload=who, start_ns=0, end_ns=int(seconds * SECOND), origin="probe", **fields)


def _evidence(window: Window, config: EngineConfig | None = None, *, is_recording: bool = False) -> Evidence:
    return Evidence(workload=window.workload, recent=window, lifetime=window, config=config, is_recording=is_recording)


def both_ways(recorded: Recordings) -> Iterator[Situation]:
    """`harmful`: a process that replays nine steps in ten and runs the tenth eager, the same work.

    Eager and graph times are the recorded ones. Imposed: copies into static inputs before each replay, as long as those
    of a recording that made them (1 GB or 64 MB a step). Without copies one recording is slower as a graph by itself.
    """
    copies = {
        mb: (r := _find(recorded, f"replay-copies-{mb}mb")).step_us - float(r.line["truth"]["graph_us"])
        for mb in (64, 1024)
    }
    eager_wins = (
        ("elementwise-16m-x60", 1024),
        ("decoder-tuned-h2048-l8-b32-aim08", 1024),
        ("decoder-eager-h4096-l8-b48-k2048", 1024),
        ("decoder-tuned-h2048-l8-b32-aim03", 0),
    )
    graph_wins = (
        ("elementwise-16m-x60", 64),
        ("decoder-tuned-h2048-l8-b32-aim08", 64),
        ("decoder-eager-h4096-l8-b48-k2048", 64),
        ("training-block-h4096-l2-t2048-b4", 1024),
        ("decoder-eager-h2048-l22-b4-k512", 1024),
    )
    for name, mb in (*eager_wins, *graph_wins):
        one = _find(recorded, name)
        graph_us = float(one.line["truth"]["graph_us"]) + copies.get(mb, 0.0)
        eager, full = STEPS // 10, STEPS - STEPS // 10
        window = _window(
            name,
            dispatch=Dispatch(
                steps={"full": full, "eager": eager},
                replays=full,
                batch_sizes={8: STEPS},
                eager_batch_sizes={8: eager},
            ),
            timing=Timing(step_by_mode={"full": _times(graph_us, full), "eager": _times(one.step_us, eager)}),
        )
        harmed = frozenset({"harmful"}) if (name, mb) in eager_wins else NOBODY
        yield situation(f"both ways/{name}, {mb} MB copied", _evidence(window), harmed)


def never_paid_back(recorded: Recordings) -> Iterator[Situation]:
    """`unamortised`: eager and replayed steps recorded in one process.

    Imposed: the time that capturing took (12 s, as reported of SGLang), and how many replays there were until the end.
    """
    for name in ("decoder-replay-h2048-l22-b4", "decoder-replay-h2048-l8-b48", "piecewise-l8-b48"):
        truth = _find(recorded, name).line["truth"]
        needed = 12e6 / (float(truth["eager_us"]) - float(truth["graph_us"]))
        for replays, is_early in ((int(0.3 * needed), True), (int(0.8 * needed), True), (int(4 * needed), False)):
            window = _window(
                name,
                dispatch=Dispatch(
                    steps={"full": replays, "eager": 30}, replays=replays, captures={"ok": 19}, live_graphs=19
                ),
                timing=Timing(
                    capture=_times(12e6 / 19, 19),
                    step_by_mode={
                        "full": _times(float(truth["graph_us"]), replays),
                        "eager": _times(float(truth["eager_us"]), 30),
                    },
                ),
            )
            told = frozenset({"unamortised"}) if is_early else NOBODY
            yield situation(f"capture of 12 s/{name}, {replays} replays", _evidence(window, is_recording=True), told)


def planned(recorded: Recordings) -> Iterator[Situation]:
    """`host_planning`: the recorded idle between replays, in which Python was busy.

    Imposed: that it was planning. In the controls 20 us are, in steps whose replays follow one another.
    """
    gaps = ("replay-gap-0p5ms", "replay-gap-2ms", "replay-gap-5ms")
    for name in (*gaps, "decoder-replay-h2048-l22-b4", "decoder-replay-h2048-l8-b48", "decoder-replay-h2048-l8-b1"):
        one = _find(recorded, name)
        plan_us = one.step_us - float(one.line["truth"]["without_gap_us"]) if name in gaps else 20.0
        window = replace(
            one.window,
            origin="probe",
            dispatch=Dispatch(steps={"full": STEPS}, replays=STEPS),
            timing=Timing(
                step_period=_times(one.step_us, STEPS),
                replay_gap=_times(plan_us, STEPS // 64),
                host_plan=_times(plan_us, STEPS),
            ),
        )
        told = frozenset({"host_planning"}) if name in gaps else NOBODY
        allowed = frozenset({"replay_gap"})
        yield situation(f"planning/{name}", _evidence(window, is_recording=True), told, allowed)


def compiled(recorded: Recordings) -> Iterator[Situation]:
    """`compile_mode`: recorded steps with recorded step times. Imposed: the mode in which torch.compile was called."""
    eager = {
        "decoder-eager-h2048-l22-b4": "default",
        "training-mlp-w256-d8-b64": "max-autotune-no-cudagraphs",
        "training-block-h4096-l2": "default",
    }
    for name, mode in {
        **eager,
        "decoder-replay-h2048-l22-b4": "default",
        "decoder-replay-h2048-l8-b48": "reduce-overhead",
    }.items():
        one = _find(recorded, name)
        replays = 0 if name in eager else STEPS
        window = replace(
            one.window,
            origin="probe",
            dispatch=Dispatch(replays=replays),
            timing=Timing(step_period=_times(one.step_us, STEPS)),
        )
        config = EngineConfig(engine="torch", compile_mode=mode)
        told = frozenset({"compile_mode"}) if name in eager else NOBODY
        lost = frozenset({"disabled"}) if one.line["label"] == "fault" and name in eager else NOBODY
        yield situation(f"compiled/{name}, {mode}", _evidence(window, config, is_recording=True), told | lost)


def shared_devices(recorded: Recordings) -> Iterator[Situation]:
    """`contention` and `slow_device`: one of twelve recorded replicas, whose steps and replays are made longer.

    Imposed with it: a second process on its device, or a lower clock with its reason. In the controls the process is
    there and nothing is longer, or the low clock is that of a setting on all replicas.
    """
    form = fleets.forms(dict(recorded))[fleets.HEALTHY]
    second = replace(DEVICE, processes=2)
    low = {reason: replace(DEVICE, sm_clock_hz=1_350_000_000, throttle_reasons=(reason,))
           for reason in ("thermal", "power_cap", "application_clocks")}  # fmt: skip
    contention, slow = frozenset({"contention"}), frozenset({"slow_device"})
    for name, slowness, odd, others, told in (
        ("a second process, 1.25 times", 1.25, second, DEVICE, contention),
        ("a second process, 1.45 times", 1.45, second, DEVICE, contention),
        ("a second process, twice", 2.0, second, DEVICE, contention),
        ("a second process that rests", 1.0, second, DEVICE, NOBODY),
        ("too hot, 1.4 times", 1.4, low["thermal"], DEVICE, slow),
        ("at its power limit, 1.2 times", 1.2, low["power_cap"], DEVICE, slow),
        ("a clock that was set on all", 1.4, low["application_clocks"], low["application_clocks"], NOBODY),
    ):
        rng = random.Random(name)
        whole = 1.0 if told else slowness
        replicas = [fleets.Replica(form, f"pod-{i}", slowness=whole) for i in range(11)]
        odd_one = fleets.Replica(form, "odd", slowness=slowness)
        members = [_on_device(fleets.evidence_of(r, rng, 8), others) for r in replicas]
        members.append(_on_device(fleets.evidence_of(odd_one, rng, 8), odd))
        judged = with_peers(members)
        allowed = frozenset({"odd_one_out"}) if told else NOBODY
        yield situation(f"shared device/{name}", judged[-1], told, allowed)
        yield situation(f"shared device/{name}, a neighbour", judged[0])


def _on_device(evidence: Evidence, device: DeviceState) -> Evidence:
    """A replica with the state of its device and the times of its replays, nearly all of its steps."""
    step = evidence.recent.timing.step_period
    assert step is not None
    replay = _times(0.97 * (step.mean or 0.0) / 1000, max(1, step.count // 64))
    recent = replace(evidence.recent, device=device, timing=replace(evidence.recent.timing, replay=replay))
    return replace(evidence, recent=recent)
