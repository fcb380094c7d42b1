"""Which offsets a micro-batch reads, and how they are cut into tasks. Pure arithmetic, the same as the connector's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.client.cluster import LATEST, TopicPartition
from penstock.pipeline.spark.offsets import Offsets


class OffsetRange(NamedTuple):
    """[start, end) of a partition. The size is an estimate: compaction and transactions leave gaps."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def within_limit(limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
    """`end`, cut so that about `limit` records lie between. Each partition gets its share; a small one is not starved.

    Partitions of `start` that are LATEST have nothing to read yet.
    """
    sizes = {each: end[each] - first for each, first in start.items() if first != LATEST and each in end}
    sizes = {each: size for each, size in sizes.items() if size > 0}
    total = sum(sizes.values())
    if total < 1:
        return dict(end)
    limited = dict(end)
    for partition, size in sizes.items():
        share = limit * (size / total)
        share = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(end[partition], start[partition] + share)
    return limited


def slices(
    ranges: Iterable[OffsetRange], partitions_min: int | None, records_per_partition_max: int | None
) -> list[OffsetRange]:
    """The ranges as tasks read them: one each, or more by the two options. Empty ranges are dropped."""
    whole = sorted(each for each in ranges if each.size > 0)
    if records_per_partition_max is not None:
        limit = records_per_partition_max
        whole = [part for each in whole for part in _divided(each, math.ceil(each.size / limit))]
    if partitions_min is None or len(whole) >= partitions_min:
        return whole
    # Small ranges stay whole, and do not count when the others are divided in proportion.
    total = sum(each.size for each in whole)
    small = {each.partition for each in whole if _parts(each.size, total, partitions_min) == 1}
    small_ranges = [each for each in whole if _parts(each.size, total, partitions_min) == 1]
    large_total = total - sum(each.size for each in small_ranges)
    large_min = max(partitions_min - len(small_ranges), 1)
    divided: list[OffsetRange] = []
    for each in whole:
        divided += _divided(each, 1 if each.partition in small else _parts(each.size, large_total, large_min))
    return divided


def _parts(size: int, total: int, parts_min: int) -> int:
    # As Java rounds: half goes up.
    return max(math.floor(size / total * parts_min + 0.5), 1)


def _divided(whole: OffsetRange, parts: int) -> Sequence[OffsetRange]:
    divided = []
    start = whole.start
    for index in range(parts):
        end = start + (whole.end - start) // (parts - index)
        if end > start:
            divided.append(OffsetRange(whole.partition, start, end))
        start = end
    return divided
