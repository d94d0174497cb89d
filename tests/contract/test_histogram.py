"""The one histogram layout: exact buckets, exact merging, bounded quantile error."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from replaywatch.contract.histogram import Histogram, bucket_index, bucket_upper

VALUES = st.integers(min_value=1, max_value=1 << 62)


@given(VALUES)
def test_a_value_lies_in_its_bucket(value: int) -> None:
    index = bucket_index(value)
    # Exact: value <= 2**(i/8) means value**8 <= 2**i.
    if value < 1 << 50:
        assert Fraction(value) ** 8 <= Fraction(2) ** index
        assert Fraction(value) ** 8 > Fraction(2) ** (index - 1)


def test_powers_of_two_close_their_bucket() -> None:
    for exponent in range(62):
        assert bucket_index(1 << exponent) == exponent * 8
        assert bucket_upper(exponent * 8) == 1 << exponent


@given(st.lists(st.integers(-3, 1 << 40)), st.lists(st.integers(-3, 1 << 40)))
def test_merging_equals_counting_together(a: list[int], b: list[int]) -> None:
    assert Histogram.of(a).merge(Histogram.of(b)) == Histogram.of(a + b)


@given(st.lists(VALUES, min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_within_one_bucket_of_the_truth(values: list[int], q: float) -> None:
    estimate = Histogram.of(values).quantile(q)
    rank = min(len(values) - 1, max(0, -(-q * len(values) // 1) - 1))
    truth = sorted(values)[int(rank)]
    assert estimate is not None
    assert truth / 1.0906 <= estimate <= truth * 1.0906


def test_an_empty_histogram_has_no_quantile_and_no_mean() -> None:
    assert Histogram().quantile(0.5) is None
    assert Histogram().mean is None
    assert Histogram().share_above(3) is None


def test_share_above_counts_whole_buckets() -> None:
    histogram = Histogram.of([1, 10, 100, 1000])
    assert histogram.share_above(100) == 0.25
    assert histogram.share_above(0) == 1.0
