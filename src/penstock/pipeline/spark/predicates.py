"""Batch predicates that Spark hands down, as bounds on what has to be read.

Bounds only narrow the reading: Spark still applies every predicate itself. A lower bound of the timestamp is exact,
since brokers find the first record at or after a time; an upper one is not used, because later records may be older.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.client.cluster import TopicPartition
from penstock.pipeline.spark.ranges import OffsetRange


@dataclass
class Bounds:
    topics: set[str] | None = None
    partitions: set[int] | None = None
    offset_min: int = 0
    offset_end: int | None = None
    time_ms_min: int | None = None

    def admits(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def cut(self, whole: OffsetRange) -> OffsetRange:
        end = whole.end if self.offset_end is None else min(whole.end, self.offset_end)
        return whole._replace(start=max(whole.start, self.offset_min), end=end)


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    bounds = Bounds()
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) != 1:
            continue
        match attribute[0]:
            case "topic":
                bounds.topics = _narrowed(bounds.topics, each, str)
            case "partition":
                bounds.partitions = _narrowed(bounds.partitions, each, int)
            case "offset":
                _narrow_offsets(bounds, each)
            case "timestamp":
                _narrow_times(bounds, each)
    return bounds


def _narrowed(known: set[Any] | None, predicate: Filter, kind: type) -> set[Any] | None:
    if isinstance(predicate, EqualTo | EqualNullSafe):
        wanted = {predicate.value}
    elif isinstance(predicate, In):
        wanted = set(predicate.value)
    else:
        return known
    wanted = {value for value in wanted if isinstance(value, kind)}
    return wanted if known is None else known & wanted


def _narrow_offsets(bounds: Bounds, predicate: Filter) -> None:
    value = getattr(predicate, "value", None)
    if isinstance(predicate, In):
        numbers = [each for each in predicate.value if isinstance(each, int)]
        lowest, end = (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    elif not isinstance(value, int):
        return
    elif isinstance(predicate, EqualTo | EqualNullSafe):
        lowest, end = value, value + 1
    elif isinstance(predicate, GreaterThan | GreaterThanOrEqual):
        lowest, end = value + isinstance(predicate, GreaterThan), None
    elif isinstance(predicate, LessThan | LessThanOrEqual):
        lowest, end = 0, value + isinstance(predicate, LessThanOrEqual)
    else:
        return
    bounds.offset_min = max(bounds.offset_min, lowest)
    if end is not None:
        bounds.offset_end = end if bounds.offset_end is None else min(bounds.offset_end, end)


def _narrow_times(bounds: Bounds, predicate: Filter) -> None:
    value = getattr(predicate, "value", None)
    if isinstance(value, datetime) and isinstance(
        predicate, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual
    ):
        # Records have milliseconds: rounding down finds no record too late.
        time_ms = int(value.timestamp() * 1000)
        bounds.time_ms_min = time_ms if bounds.time_ms_min is None else max(bounds.time_ms_min, time_ms)
