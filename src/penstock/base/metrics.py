"""Counting on the hot path: plain integers, and times in buckets that cost one shift and one addition.

A histogram has four buckets for each power of two of microseconds, so that a percentile is right to an eighth. Counts
only grow; a window of the recent past is the difference to an earlier copy.
"""

from collections.abc import Sequence

_SUB_BITS = 2
# Up to 2**37 us, which is 38 hours.
BUCKETS = 36 << _SUB_BITS


class Histogram:
    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_us = 0

    def record_us(self, elapsed_us: int) -> None:
        self.sum_us += elapsed_us
        self.counts[bucket_of(elapsed_us)] += 1

    @property
    def count(self) -> int:
        return sum(self.counts)


def bucket_of(elapsed_us: int) -> int:
    """0 to 3 us have a bucket each; above, the two bits that follow the highest one tell four apart."""
    if elapsed_us < 4:
        return max(elapsed_us, 0)
    shift = elapsed_us.bit_length() - 3
    bucket = (shift << _SUB_BITS) + (elapsed_us >> shift)
    return bucket if bucket < BUCKETS else BUCKETS - 1


def bucket_bounds_us(bucket: int) -> tuple[int, int]:
    """The smallest value of the bucket and of the next one."""
    if bucket < 4:
        return bucket, bucket + 1
    shift = (bucket >> _SUB_BITS) - 1
    low = (4 + (bucket & 3)) << shift
    return low, low + (1 << shift)


def quantile_us(counts: Sequence[int], quantile: float) -> float:
    """The middle of the bucket that it falls into; 0 where nothing was counted."""
    total = sum(counts)
    if not total:
        return 0.0
    rank = quantile * total
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= rank:
            low, high = bucket_bounds_us(bucket)
            return (low + high - 1) / 2
    raise AssertionError("a quantile above 1")


def since(counts: Sequence[int], earlier: Sequence[int]) -> list[int]:
    return [now - then for now, then in zip(counts, earlier, strict=True)]
