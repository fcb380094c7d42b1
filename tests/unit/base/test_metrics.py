"""Histograms: every value has one bucket, and quantiles are right to an eighth."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.metrics import BUCKETS, Histogram, bucket_bounds_us, bucket_of, quantile_us, since


@given(st.integers(0, 2**35))
def test_a_value_lies_within_the_bounds_of_its_bucket(elapsed_us: int) -> None:
    low, high = bucket_bounds_us(bucket_of(elapsed_us))
    assert low <= elapsed_us < high
    assert high - low <= max(1, low / 4)


def test_buckets_follow_each_other_without_gaps() -> None:
    ends = [bucket_bounds_us(bucket) for bucket in range(BUCKETS)]
    assert all(high == low for (_, high), (low, _) in pairwise(ends))


@given(st.integers(2**37, 2**70))
def test_what_is_too_large_goes_into_the_last_bucket(elapsed_us: int) -> None:
    assert bucket_of(elapsed_us) == BUCKETS - 1
    assert bucket_of(-5) == 0


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_close_to_the_value_of_that_rank(values: list[int], quantile: float) -> None:
    histogram = Histogram()
    for one in values:
        histogram.record_us(one)
    assert histogram.count == len(values)
    assert histogram.sum_us == sum(values)
    rank = max(1, -(-int(quantile * len(values) * 1000) // 1000))
    exact = sorted(values)[min(rank, len(values)) - 1]
    assert abs(quantile_us(histogram.counts, quantile) - exact) <= exact / 8 + 1


def test_nothing_counted_has_quantile_zero_and_a_window_is_a_difference() -> None:
    assert quantile_us([0] * BUCKETS, 0.99) == 0
    histogram = Histogram()
    histogram.record_us(1)
    earlier = histogram.counts.copy()
    histogram.record_us(1000)
    assert quantile_us(since(histogram.counts, earlier), 0.5) > 800
