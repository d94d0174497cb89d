"""Fragments, planning, slow launches, contention, slow devices, growth, stale graphs, amortisation, low load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce

import pytest

from detectors.live import DEVICE, LENGTH_S, Fault, Moment, stream
from detectors.made import MS, SECOND, eager_work, evidence, replayed_work, window
from replaywatch.contract.device import DeviceState
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Finding
from replaywatch.contract.window import Dispatch, Timing, Window
from replaywatch.detectors.evidence import Evidence, gather
from replaywatch.detectors.judge import judge
from replaywatch.detectors.peers import CohortSummary, Spread
from replaywatch.detectors.sudden_state import SuddenState, advance


def found(given: Evidence, detector: str) -> Finding | None:
    return next((f for f in judge(given).findings if f.detector == detector), None)


def told(given: Evidence, detector: str) -> Finding:
    finding = found(given, detector)
    assert finding is not None
    return finding


def times(us: float, n: int = 1000) -> Histogram:
    return Histogram.of([int(us * 1000)] * n)


def stepping(step_us: float = 3300, **fields: object) -> Window:
    """A minute of a thousand replayed steps."""
    given = {"steps": {"full": 1000, "eager": 0}, "replays": 1000, "batch_sizes": {8: 1000}}
    dispatch = Dispatch(**{**given, **fields.pop("dispatch", {})})  # type: ignore[dict-item]
    timing = Timing(step_period=times(step_us), **fields.pop("timing", {}))  # type: ignore[arg-type]
    return window(dispatch=dispatch, timing=timing, **fields)


def test_a_step_of_many_small_graphs_that_waits_for_launches_is_found() -> None:
    work = replayed_work(step_ms=4.6, kernels=300, busy_ms=2.4)
    work = replace(work, graph_launches=8 * 66, replay_gap_ns=8 * 2 * MS, method="cupti")
    finding = told(evidence(window(traced=work)), "fragmented")
    assert finding.severity == "page"
    assert "66 graphs of 5 kernels" in finding.title


def test_many_graphs_that_keep_the_device_busy_are_healthy() -> None:
    work = replace(replayed_work(step_ms=2.6, kernels=300, busy_ms=2.4), graph_launches=8 * 30, method="cupti")
    assert found(evidence(window(traced=work)), "fragmented") is None


def test_many_launches_without_a_trace_are_information() -> None:
    live = stepping(dispatch={"replays": 40_000}, timing={"graph_launch_call": times(9, 4000)})
    finding = told(evidence(live), "fragmented")
    assert (finding.severity, finding.is_fault) == ("info", False)


def test_idle_between_timed_replays_is_told_without_any_trace() -> None:
    long = told(evidence(stepping(5000, timing={"replay_gap": times(3500, 20)})), "replay_gap")
    assert (long.severity, long.is_fault) == ("warn", True)
    assert long.estimate is not None
    assert not long.estimate.is_recoverable
    short = told(evidence(stepping(5000, timing={"replay_gap": times(1500, 20)})), "replay_gap")
    assert (short.severity, short.is_fault) == ("info", False)
    assert found(evidence(stepping(5000, timing={"replay_gap": times(8, 20)})), "replay_gap") is None
    paused = times(8, 3).merge(times(150_000, 1))
    assert found(evidence(stepping(5000, timing={"replay_gap": paused})), "replay_gap") is None


@pytest.mark.parametrize(
    ("between_us", "words"),
    [
        (4200, "between two forwards: scheduling"),  # one batch ahead: 2.7 ms of it are not the replay's
        (600, "inside the forward"),
        (1500, "inside the forward"),  # the engine waits there for the replay, which takes as long
        (3000, "planning"),  # neither side must hold most of it
        (None, "planning"),
    ],
)
def test_where_the_host_spends_the_gap_between_replays_is_the_cause(between_us: float | None, words: str) -> None:
    timing = {"replay_gap": times(3500, 20)} | ({"between_forwards": times(between_us)} if between_us else {})
    finding = told(evidence(stepping(5000, timing=timing)), "replay_gap")
    assert words in finding.causes[0].text
    items = {item.name: item.value for item in finding.evidence}
    assert (items.get("between two forwards") is None) == (between_us is None)


@pytest.mark.parametrize(
    "dispatch",
    [{"replays": 25_000}, {"steps": {"full": 500, "eager": 500}, "replays": 500}],
    ids=["piecewise", "mixed"],
)
def test_gaps_between_pieces_of_a_step_are_no_evidence_without_a_trace(dispatch: dict[str, object]) -> None:
    live = stepping(5000, dispatch=dispatch, timing={"replay_gap": times(2000, 20)})
    assert found(evidence(live), "replay_gap") is None


def test_planning_on_the_host_is_told_and_a_warning_where_the_device_waits() -> None:
    hidden = stepping(4000, timing={"host_plan": times(1500)})
    seen = stepping(4000, timing={"host_plan": times(1500), "replay_gap": times(1400, 20)})
    short = stepping(4000, timing={"host_plan": times(100)})
    assert told(evidence(hidden), "host_planning").severity == "info"
    assert told(evidence(seen), "host_planning").severity == "warn"
    assert found(evidence(short), "host_planning") is None


def test_a_launch_that_is_slower_than_under_other_versions_is_told_with_the_version() -> None:
    """Case 14: seven times slower after an upgrade."""
    peers = CohortSummary(n=6, spreads={"launch_us": Spread(6, 42, 1)}, elsewhere={"launch_us": 6.0})
    live = stepping(400, timing={"graph_launch_call": times(42)})
    given = replace(evidence(live), peers=peers, fingerprint=Fingerprint(driver="580", torch="2.11"))
    finding = told(given, "slow_launch")
    assert finding.severity == "warn"
    assert "other versions need 6.0 us" in finding.title
    assert "torch 2.11" in finding.causes[0].text


def test_usual_launches_and_long_steps_are_healthy() -> None:
    assert found(evidence(stepping(400, timing={"graph_launch_call": times(6)})), "slow_launch") is None
    assert found(evidence(stepping(9000, timing={"graph_launch_call": times(42)})), "slow_launch") is None


def _after(**changes: object) -> Evidence:
    """Twenty calm minutes, then thirty seconds with something changed."""
    held: Fault = lambda moment: replace(moment, **changes)  # type: ignore[arg-type]  # noqa: E731
    windows = list(stream(1200, 1, batch=lambda s, r: 16.0))
    later = stream(30, 1, batch=lambda s, r: 16.0, start_s=1200, faults={0.0: held})
    return gather([*windows, *later], horizon_ns=15 * SECOND)


def test_longer_replays_beside_another_process_are_contention() -> None:
    finding = told(_after(replay_ms=5.0, step_ms=5.4, device=replace(DEVICE, processes=2)), "contention")
    assert finding.severity == "warn"
    assert "2 processes" in finding.title


def test_neighbours_alone_and_a_slow_clock_are_no_contention() -> None:
    assert found(_after(device=replace(DEVICE, processes=4)), "contention") is None
    slow = replace(DEVICE, processes=2, sm_clock_hz=1_200_000_000, throttle_reasons=("thermal",))
    given = _after(replay_ms=5.0, step_ms=5.4, device=slow)
    assert found(given, "contention") is None
    assert "61 % of its clock (thermal)" in told(given, "slow_device").title


def test_a_device_that_rests_or_is_set_slower_is_not_called_slow() -> None:
    for reasons in (("idle",), ("application_clocks",), ()):
        device = DeviceState(sm_clock_hz=345_000_000, sm_clock_max_hz=1_980_000_000, throttle_reasons=reasons)
        assert found(evidence(window(device=device)), "slow_device") is None


def _with_pool(moment: Moment, *, pool_bytes: int, captures: int) -> Moment:
    return replace(moment, pool_bytes=pool_bytes, captures=captures)


def _pools(sizes_mib: list[int], captures: int = 1) -> Evidence:
    def windows() -> Iterator[Window]:
        for i, mib in enumerate(sizes_mib):
            held = partial(_with_pool, pool_bytes=mib << 20, captures=captures)
            yield from stream(60, i, start_s=60.0 * i, faults={0.0: held})

    made = list(windows())
    return replace(gather(made[-12:]), sudden=reduce(advance, made, SuddenState()))


def test_graph_memory_that_goes_on_growing_is_a_warning() -> None:
    finding = told(_pools([512] * 12 + [512 + 64 * i for i in range(12)]), "graph_memory_growth")
    assert (finding.severity, finding.is_fault) == ("warn", True)
    assert "captures since" in {i.name for i in finding.evidence}


def test_graph_memory_that_rose_once_is_information_and_the_first_minutes_are_nothing() -> None:
    assert told(_pools([512] * 12 + [1024] * 3), "graph_memory_growth").severity == "info"
    assert found(_pools([100, 200, 400, 600, 900]), "graph_memory_growth") is None


@pytest.mark.parametrize("field", ["gpu_model", "driver", "cuda", "torch", "engine_version", "code_version"])
def test_each_part_of_the_environment_that_changes_under_graphs_is_told(field: str) -> None:
    before = Fingerprint(
        gpu_model="H200", driver="580", cuda="13.0", torch="2.11", engine_version="1", code_version="a"
    )
    now = replace(before, **{field: "other"})
    windows = list(stream(300, 1, faults={150.0: lambda m: replace(m, fingerprint_id=now.id)}))
    windows = [replace(w, fingerprint_id=before.id) if w.fingerprint_id == "f1" else w for w in windows]
    given = gather(windows, fingerprints={before.id: before, now.id: now})
    finding = told(given, "stale_environment")
    assert finding.severity == "warn"
    assert field.replace("_", " ") in finding.title


def test_what_only_became_known_or_was_captured_again_is_not_stale() -> None:
    known = Fingerprint(gpu_model="H200", driver="580", torch="2.11")
    unknown = replace(known, driver=None, engine="unknown")
    known = replace(known, engine="vllm")
    windows = [replace(w, fingerprint_id=unknown.id if i < 20 else known.id) for i, w in enumerate(stream(300, 1))]
    prints = {known.id: known, unknown.id: unknown}
    assert found(gather(windows, fingerprints=prints), "stale_environment") is None
    other = replace(known, driver="590")
    again = [
        replace(w, fingerprint_id=other.id, dispatch=replace(w.dispatch, captures={"ok": 3}))
        if i >= 20
        else replace(w, fingerprint_id=known.id)
        for i, w in enumerate(stream(300, 1))
    ]
    assert found(gather(again, fingerprints={known.id: known, other.id: other}), "stale_environment") is None


def _amortised(replays: int, seconds: float) -> Evidence:
    timing = Timing(
        capture=Histogram.of([1_800 * MS]), step_by_mode={"eager": times(4000, 50), "full": times(2500, 50)}
    )
    return evidence(window(seconds=seconds, timing=timing, dispatch=Dispatch(replays=replays, captures={"ok": 1})))


def test_a_capture_that_never_paid_is_told_with_its_break_even() -> None:
    """1.8 s of capture and 1.5 ms saved a replay need 1,200 replays."""
    finding = told(_amortised(400, 3600), "unamortised")
    needed = next(i.value for i in finding.evidence if i.name == "replays to break even")
    assert needed == pytest.approx(1200, rel=0.01)
    assert not finding.is_fault
    assert found(_amortised(1300, 3600), "unamortised") is None
    assert found(_amortised(400, 60), "unamortised") is None


def test_lone_requests_under_a_large_smallest_graph_are_told() -> None:
    config = EngineConfig(engine="sglang", capture_sizes=(16, 32), capture_unit="sequences", padding=True)
    lone = stepping(dispatch={"batch_sizes": {1: 700, 16: 300}})
    assert "padded to 16" in told(evidence(lone, config=config), "low_load").title
    assert found(evidence(stepping(), config=config), "low_load") is None
    fine = replace(config, capture_sizes=(1, 2, 4, 16))
    assert found(evidence(lone, config=fine), "low_load") is None


def test_eager_work_is_left_to_the_detectors_of_eager_work() -> None:
    names = {f.detector for f in judge(evidence(window(traced=eager_work()))).findings}
    assert names == {"disabled"}


def test_windows_of_a_healthy_hour_give_no_finding_at_all() -> None:
    windows = list(stream(3600, 11))
    state, recent = SuddenState(), list[Window]()
    for i, one in enumerate(windows):
        state = advance(state, one)
        recent.append(one)
        if i % 24 == 23:
            given = replace(gather(recent[-24:]), sudden=state)
            assert [f.detector for f in judge(given).findings] == []
    assert len(recent) == 3600 / LENGTH_S
