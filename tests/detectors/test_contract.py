"""One contract for every detector, found automatically."""

from __future__ import annotations

import inspect
import json
import pkgutil
import random
import time
from importlib import import_module
from pathlib import Path
from timeit import timeit
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import replaywatch.detectors
from contract.windows import WINDOW
from detectors.live import stream
from detectors.made import eager_work, replayed_work, window
from detectors.rich_windows import rich_evidence
from replaywatch.contract.verdict import Blind, Finding, Healthy, Verdict, WarmingUp
from replaywatch.contract.window import Dispatch, Window, merge_windows
from replaywatch.contract.wire import decode_record, jsonable
from replaywatch.detectors.catalogue import DETECTORS
from replaywatch.detectors.detector import Detector
from replaywatch.detectors.evidence import Evidence, gather
from replaywatch.detectors.judge import judge

EMPTY = window()
SITUATIONS = [
    EMPTY,
    window(traced=eager_work()),
    window(traced=replayed_work()),
    window(dispatch=Dispatch(steps={"full": 100, "eager": 900}, batch_sizes={48: 1000}, replays=100)),
    window(dispatch=Dispatch(captures={"ok": 30, "failed": 2}, replays=0, steps={"eager": 100})),
]


def _classes() -> list[type[Any]]:
    found = []
    for module in pkgutil.iter_modules(replaywatch.detectors.__path__, "replaywatch.detectors."):
        for _, item in inspect.getmembers(import_module(module.name), inspect.isclass):
            if item.__module__ == module.name and hasattr(item, "judge") and item is not Detector:
                found.append(item)
    return found


def _both_ways(recent: Window) -> list[Evidence]:
    return [
        Evidence(workload=recent.workload, recent=recent, lifetime=recent, is_recording=is_recording)
        for is_recording in (False, True)
    ]


def test_every_detector_class_is_in_the_catalogue() -> None:
    assert {type(d) for d in DETECTORS} == set(_classes())
    assert len({d.name for d in DETECTORS}) == len(DETECTORS)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
def test_a_detector_states_what_it_is_bad_at(detector: Detector) -> None:
    assert "Bad at:" in (type(detector).__doc__ or "")


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recent=WINDOW)
def test_any_window_gives_a_verdict_with_a_reason(detector: Detector, recent: Window) -> None:
    for evidence in _both_ways(recent):
        verdict = detector.judge(evidence)
        assert verdict == detector.judge(evidence)
        assert _says_something(verdict)
        assert verdict.detector == detector.name


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(evidence=rich_evidence())
def test_any_evidence_gives_a_verdict_that_can_be_told(detector: Detector, evidence: Evidence) -> None:
    verdict = detector.judge(evidence)
    assert verdict == detector.judge(evidence)
    assert _says_something(verdict)
    if isinstance(verdict, Finding):
        assert verdict.subject == evidence.workload.key
        assert all(item.name and item.source for item in verdict.evidence)
        if verdict.estimate is not None:
            assert 0.0 <= verdict.estimate.low <= verdict.estimate.ratio <= verdict.estimate.high <= 1.0


def test_every_detector_file_is_small() -> None:
    for path in Path(replaywatch.detectors.__path__[0]).glob("*.py"):
        assert len(path.read_text().splitlines()) <= 250


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
def test_no_detector_takes_long(detector: Detector) -> None:
    """One window of a fleet of thousands is judged by every detector within half a millisecond."""
    windows = list(stream(300, 1))
    given = gather(windows[-24:])
    best = min(timeit(lambda: detector.judge(given), number=20) / 20 for _ in range(5))
    assert best < 0.0005


def _says_something(verdict: Verdict) -> bool:
    match verdict:
        case Finding():
            return bool(verdict.title and verdict.severity != "none")
        case Healthy():
            return bool(verdict.because)
        case WarmingUp():
            return bool(verdict.needs)
        case Blind():
            return bool(verdict.reason)


@pytest.mark.parametrize("situation", range(len(SITUATIONS)))
def test_the_order_of_windows_does_not_matter(situation: int) -> None:
    windows = [SITUATIONS[situation], EMPTY, SITUATIONS[situation]]
    expected = judge(gather(windows))
    for seed in range(5):
        shuffled = random.Random(seed).sample(windows, len(windows))
        assert judge(gather(shuffled)) == expected


@pytest.mark.parametrize("situation", range(len(SITUATIONS)))
def test_a_restart_from_stored_windows_gives_the_same_judgement(situation: int) -> None:
    kept = SITUATIONS[situation]
    restored = decode_record(Window, json.loads(json.dumps(jsonable(kept))))
    assert judge(gather([restored])) == judge(gather([kept]))


def test_evidence_does_not_grow_with_the_number_of_windows() -> None:
    one = window(dispatch=Dispatch(steps={"full": 10}, batch_sizes={4: 10}))
    merged = one
    for _ in range(500):
        merged = merge_windows(merged, one)
    assert len(json.dumps(jsonable(merged))) < 2 * len(json.dumps(jsonable(one))) + 100


def test_nothing_seen_is_blind_never_healthy() -> None:
    for evidence in _both_ways(EMPTY):
        assert judge(evidence).verdict == "blind"


def test_judging_a_window_takes_well_under_a_millisecond() -> None:
    evidence = _both_ways(window(traced=eager_work()))[0]
    judge(evidence)
    best = min(_timed(evidence) for _ in range(5))
    assert best < 0.002


def _timed(evidence: Evidence) -> float:
    start = time.perf_counter()
    for _ in range(20):
        judge(evidence)
    return (time.perf_counter() - start) / 20
