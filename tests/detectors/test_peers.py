"""R2: one odd replica is found among peers; half odd, all odd and mixed hardware are left to the other votes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.made import MS, SECOND, eager_work, replayed_work
from replaywatch.contract.device import DeviceState
from replaywatch.contract.histogram import Histogram
from replaywatch.contract.snapshot import EngineConfig, Fingerprint
from replaywatch.contract.verdict import Finding
from replaywatch.contract.window import Dispatch, Timing, Window, Workload
from replaywatch.detectors.evidence import Evidence
from replaywatch.detectors.figures import Figures, figures_of
from replaywatch.detectors.judge import Judgement, judge
from replaywatch.detectors.peers import Member, cohort_key, deviations, family_key, is_odd, summaries, summarise

PRINT = Fingerprint(gpu_model="NVIDIA H200", driver="580", torch="2.11", engine="vllm", model_name="llama-1b")


def recent(name: str, step_ms: float, *, eager: float = 0.0, batch: int = 8, steps: int = 400) -> Window:
    """A minute of a replica."""
    fallen = round(steps * eager)
    return Window(
        workload=Workload(pod=name, engine="vllm", phase="decode"),
        start_ns=1000 * SECOND,
        end_ns=1060 * SECOND,
        origin="probe",
        dispatch=Dispatch(steps={"full": steps - fallen, "eager": fallen}, batch_sizes={batch: steps}),
        timing=Timing(step_period=Histogram.of([round(step_ms * MS)] * steps)),
    )


def cohort(windows: list[Window], prints: list[Fingerprint] | None = None) -> list[Evidence]:
    """Evidence of replicas that know their peers, as a collector makes it."""
    prints = prints or [PRINT] * len(windows)
    keys = [cohort_key(p, None, w.workload) for p, w in zip(prints, windows, strict=True)]
    members = [
        Member(k, family_key(p, None, w.workload), figures_of(w))
        for k, p, w in zip(keys, prints, windows, strict=True)
        if k is not None
    ]
    known = summaries(members)
    return [
        Evidence(workload=w.workload, recent=w, lifetime=w, fingerprint=p, peers=known.get(k or ""))
        for k, p, w in zip(keys, prints, windows, strict=True)
    ]


def odd(judgement: Judgement) -> Finding | None:
    return next((f for f in judgement.findings if f.detector == "odd_one_out"), None)


def found_odd(members: list[Evidence]) -> list[int]:
    return [i for i, e in enumerate(members) if odd(judge(e)) is not None]


def healthy(n: int, seed: int = 1, spread: float = 0.03) -> list[Window]:
    rng = random.Random(seed)
    return [recent(f"pod-{i}", 3.3 * rng.lognormvariate(0, spread)) for i in range(n)]


@pytest.mark.parametrize("n", [5, 40, 1000])
def test_one_replica_without_graphs_is_found_and_no_other(n: int) -> None:
    windows = healthy(n)
    windows[n // 2] = recent("odd", 11.0, eager=1.0)
    members = cohort(windows)
    assert found_odd(members) == [n // 2]
    finding = odd(judge(members[n // 2]))
    assert finding is not None
    assert finding.severity == "page"
    assert finding.estimate is not None
    assert finding.estimate.low < 0.7 < finding.estimate.high
    assert {v.voter: v.ballot for v in finding.votes}["peers"] == "for"


def test_a_replica_that_is_slow_for_other_reasons_is_a_warning_and_not_recoverable() -> None:
    windows = healthy(50)
    shared = DeviceState(processes=2)
    windows[7] = replace(recent("odd", 5.0), device=shared)
    finding = odd(judge(cohort(windows)[7]))
    assert finding is not None
    assert finding.severity == "warn"
    assert finding.estimate is not None
    assert not finding.estimate.is_recoverable
    assert "2 processes" in finding.causes[0].text


def test_equal_replicas_are_never_odd() -> None:
    for seed in range(10):
        assert found_odd(cohort(healthy(300, seed))) == []


def test_peers_of_two_minds_abstain_and_the_counterfactual_still_finds_the_fault() -> None:
    windows = healthy(10) + [replace(recent(f"off-{i}", 11.0, eager=1.0), traced=eager_work()) for i in range(10)]
    members = cohort(windows)
    assert found_odd(members) == []
    judgement = judge(members[-1])
    assert judgement.severity == "page"
    vote = next(v for v in judgement.findings[0].votes if v.voter == "peers")
    assert (vote.ballot, "among themselves" in vote.reason) == ("abstains", True)


def test_a_rollout_that_degrades_every_replica_is_not_voted_away() -> None:
    members = cohort([replace(w, traced=eager_work()) for w in healthy(40)])
    judgement = judge(members[3])
    assert judgement.severity == "page"
    vote = next(v for v in judgement.findings[0].votes if v.voter == "peers")
    assert (vote.ballot, "alike" in vote.reason) == ("abstains", True)


def test_mixed_hardware_is_compared_within_itself() -> None:
    slow_print = replace(PRINT, gpu_model="NVIDIA L4")
    windows = healthy(20) + [recent(f"l4-{i}", 21.0 + 0.1 * i) for i in range(3)]
    members = cohort(windows, [PRINT] * 20 + [slow_print] * 3)
    assert found_odd(members) == []
    assert members[-1].peers is not None
    assert members[-1].peers.n == 3


def test_the_host_does_not_split_a_cohort_and_an_unknown_device_has_none() -> None:
    who = Workload(pod="a")
    other_host = replace(PRINT, host_cpu="another")
    assert cohort_key(PRINT, None, who) == cohort_key(other_host, None, who)
    assert cohort_key(PRINT, EngineConfig(role="prefill"), who) != cohort_key(PRINT, EngineConfig(role="decode"), who)
    assert cohort_key(replace(PRINT, gpu_model=None), None, who) is None
    assert cohort_key(None, None, who) is None


def test_a_busier_replica_is_compared_at_its_own_load() -> None:
    rng = random.Random(5)
    batches = [rng.randint(4, 64) for _ in range(60)]
    windows = [
        recent(f"pod-{i}", (2.4 + 0.04 * b) * rng.lognormvariate(0, 0.02), batch=b) for i, b in enumerate(batches)
    ]
    assert found_odd(cohort(windows)) == []
    windows[5] = recent("slow", (2.4 + 0.04 * 30) * 1.5, batch=30)
    assert found_odd(cohort(windows)) == [5]


def test_a_load_that_no_peer_has_is_not_compared() -> None:
    windows = healthy(6)
    windows.append(recent("lone", 9.0, batch=64))
    assert found_odd(cohort(windows)) == []


def test_other_versions_of_the_same_service_are_known_as_relatives() -> None:
    newer = replace(PRINT, engine_version="2")
    members = cohort(
        [recent(f"a-{i}", 3.3) for i in range(6)] + [recent(f"b-{i}", 5.0) for i in range(6)], [PRINT] * 6 + [newer] * 6
    )
    assert members[-1].peers is not None
    assert members[-1].peers.elsewhere["step_us"] == pytest.approx(3300)
    assert found_odd(members) == []


@given(st.lists(st.floats(1, 1e6), min_size=5, max_size=60), st.randoms())
def test_a_summary_does_not_depend_on_the_order_of_members(steps: list[float], rng: random.Random) -> None:
    members = [Figures(steps=100, step_us=s, load=8.0) for s in steps]
    shuffled = rng.sample(members, len(members))
    assert summarise(members) == summarise(shuffled)
    for one in members:
        for deviation in deviations(summarise(members), one):
            assert deviation.sigma > 0
            assert not is_odd(deviation, 5) or deviation.gap >= 0.1


def test_pauses_are_no_steps() -> None:
    periods = Histogram.of([3 * MS] * 500 + [400 * MS] * 2)
    figures = figures_of(replace(recent("a", 3.0), timing=Timing(step_period=periods)))
    assert figures.step_us == pytest.approx(3000, rel=0.1)
    assert figures.pause_ratio == pytest.approx(800 / 2300, rel=0.1)


def test_replayed_work_gives_its_coverage() -> None:
    assert figures_of(replace(recent("a", 3.3), traced=replayed_work())).coverage == 1.0
