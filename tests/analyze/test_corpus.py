"""The estimate and the findings against measured truth, on recordings of an H200 (tests/data/corpus)."""

from __future__ import annotations

import statistics

import pytest

from bench.bench_estimate import CORPUS, Scored, score_corpus
from replaywatch.contract.verdict import severity_rank

MEDIAN_ERROR = 0.05
USUAL_ERROR = 0.10
# Recordings whose host changed its speed inside the trace: their estimate is off, and their number is what is allowed.
MOST_OFF = 2


@pytest.fixture(scope="module")
def scored() -> list[Scored]:
    return score_corpus(CORPUS)


def test_there_is_something_to_score(scored: list[Scored]) -> None:
    assert len(scored) >= 30
    assert sum(s.label == "control" for s in scored) >= len(scored) / 3
    assert {s.split for s in scored} == {"fit", "holdout"}


@pytest.mark.parametrize("split", ["fit", "holdout"])
def test_the_median_error_is_within_five_points(scored: list[Scored], split: str) -> None:
    errors = [abs(s.error) for s in scored if s.split == split and s.error is not None]
    assert statistics.median(errors) <= MEDIAN_ERROR


def test_errors_beyond_ten_points_are_as_few_as_they_were(scored: list[Scored]) -> None:
    off = [(s.name, s.error) for s in scored if s.error is not None and abs(s.error) > USUAL_ERROR]
    assert len(off) <= MOST_OFF, off


def test_no_control_has_a_finding_at_warn_or_above(scored: list[Scored]) -> None:
    assert [s.name for s in scored if s.label == "control" and s.is_alarm] == []


def test_large_losses_by_missing_graphs_are_pages(scored: list[Scored]) -> None:
    large = [s for s in scored if s.truth >= 0.5 and "disabled" in s.allowed]
    assert len(large) >= 5
    for s in large:
        found = {f.detector: f.severity for f in s.result.judgement.findings}
        assert found.get("disabled") == "page", (s.name, found)


def test_work_that_graphs_half_cover_is_partial_coverage(scored: list[Scored]) -> None:
    partial = next(s for s in scored if s.name == "partial-l8-b4-30pct")
    assert partial.result.judgement.findings[0].detector == "partial_coverage"
    assert severity_rank(partial.result.judgement.severity) == severity_rank("page")
