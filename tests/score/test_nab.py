"""The benchmark's scorer against what its paper says, and the general detector on it where it lies at hand."""

from __future__ import annotations

import random

import pytest

from public_data import public_file
from replaywatch.detectors.series import HISTORY, SeriesDetector
from score import nab
from score.nab import Profile, Result, Series

STANDARD = Profile(tp=1.0, fp=0.11, fn=1.0)
LEAST_SCORE = 60.0


def made(windows: tuple[tuple[int, int], ...], n: int = 2000) -> Series:
    return Series("made", tuple(float(i) for i in range(n)), tuple(300.0 * i for i in range(n)), windows)


def flagged(n: int, *at: int) -> list[float]:
    return [1.0 if i in at else 0.0 for i in range(n)]


def of(series: Series, scores: list[float]) -> Result:
    return nab.score([series], {series.name: scores}, STANDARD)


def test_a_detector_that_never_speaks_gets_nothing_and_a_perfect_one_everything() -> None:
    series = made(((1000, 1199),))
    assert of(series, [0.0] * 2000).score == 0.0
    assert of(series, flagged(2000, 1000)).score == pytest.approx(100.0)


def test_an_early_detection_is_worth_more_than_a_late_one() -> None:
    series = made(((1000, 1199),))
    scores = [of(series, flagged(2000, at)).score for at in (1000, 1100, 1190)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 90 > 80 > scores[2] > 50


def test_only_the_first_detection_in_a_window_counts() -> None:
    series = made(((1000, 1199),))
    assert of(series, flagged(2000, 1000, 1050, 1100)).score == of(series, flagged(2000, 1000)).score


def test_a_false_alarm_costs_little_close_behind_a_window_and_in_full_far_from_it() -> None:
    series = made(((1000, 1199),))
    close, far = of(series, flagged(2000, 1000, 1210)), of(series, flagged(2000, 1000, 1990))
    assert 100 > close.score > far.score
    assert far.score == pytest.approx(100 - 100 * 0.11 / 2, abs=0.1)
    assert far.false_positives == 1


def test_records_of_the_learning_period_are_not_scored() -> None:
    series = made(((1000, 1199),))
    assert series.probation == 300
    assert of(series, flagged(2000, 10, 200, 1000)).score == pytest.approx(100.0)
    assert made((), 20_000).probation == 750


def test_one_threshold_is_chosen_for_all_series() -> None:
    a, b = made(((1000, 1199),)), Series("b", made(()).values, made(()).seconds, ((500, 699),))
    scores = {"made": [s * 0.5 for s in flagged(2000, 1000)], "b": flagged(2000, 500, 1900)}
    result = nab.score([a, b], scores, STANDARD)
    assert result.threshold == 0.5
    assert (result.found, result.windows, result.false_positives) == (2, 2, 1)


def test_random_alarms_score_far_below_the_detector() -> None:
    corpus = nab.load(public_file("nab"))
    rng = random.Random(1)
    scores = {s.name: [float(rng.random() < 0.002) for _ in s.values] for s in corpus}
    assert nab.score(corpus, scores, STANDARD).score < 15


@pytest.mark.slow
def test_the_general_detector_reaches_its_aim_on_the_benchmark() -> None:
    folder = public_file("nab")
    corpus = nab.load(folder)
    result = nab.score(corpus, nab.detect(corpus), nab.profiles(folder)["standard"])
    assert result.windows == 116
    assert result.score >= LEAST_SCORE


def test_scores_come_from_the_past_alone() -> None:
    rng = random.Random(2)
    values = [rng.gauss(0, 1) for _ in range(1500)]
    whole, part = SeriesDetector(), SeriesDetector()
    scores = [whole.add(300.0 * i, v) for i, v in enumerate(values)]
    assert [part.add(300.0 * i, v) for i, v in enumerate(values[:700])] == scores[:700]


def test_a_spike_scores_and_its_repetition_at_once_does_not() -> None:
    rng, detector = random.Random(3), SeriesDetector()
    for i in range(600):
        detector.add(60.0 * i, rng.gauss(100, 1))
    assert detector.add(60.0 * 600, 160.0) > 1
    assert detector.add(60.0 * 601, 160.0) == 0.0


def test_a_constant_series_never_scores() -> None:
    detector = SeriesDetector()
    assert {detector.add(300.0 * i, 45.0) for i in range(2000)} == {0.0}


def test_memory_is_bounded() -> None:
    rng, detector = random.Random(4), SeriesDetector()
    for i in range(2 * HISTORY):
        detector.add(300.0 * i, rng.random())
    held = [len(r._sorted) for r in detector._records.values()]
    assert max(held) == HISTORY
    assert len(detector._daily._values) < 6000
