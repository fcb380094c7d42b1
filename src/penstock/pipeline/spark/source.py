"""The source as Spark calls it: one reader for batches, one for streams.

Spark keeps no record of where a Python source began: after a crash in the first micro-batch it asks for the initial
offset again. "latest" would be another place then. So a stream that starts at the end says so in its initial offset
(-1), and its first micro-batch, which is empty, writes down where that was.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from penstock.pipeline.spark.offsets import BadOption, Offsets, from_json, to_json
from penstock.pipeline.spark.options import SourceOptions
from penstock.pipeline.spark.places import Places
from penstock.pipeline.spark.predicates import Bounds, bounds_of
from penstock.pipeline.spark.ranges import OffsetRange, slices, within_limit
from penstock.pipeline.spark.slice_reading import Slice, check_schema, read_range

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._typed = check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._bounds = Bounds()

    def partitions(self) -> Sequence[Slice]:
        options = self._options
        with Cluster(options.client) as cluster:
            places = Places(options, cluster)
            partitions = places.partitions()
            start = places.resolved(places.boundary(options.starting, partitions))
            end = places.resolved(places.boundary(options.ending, partitions))
            ranges = [self._range(partition, start[partition], end[partition]) for partition in partitions]
            ranges = [self._bounds.cut(each) for each in ranges if self._bounds.admits(each.partition)]
            if self._bounds.time_ms_min is not None:
                firsts = places.time_starts([each.partition for each in ranges], self._bounds.time_ms_min)
                ranges = [
                    each._replace(
                        start=each.end if firsts[each.partition] < 0 else max(each.start, firsts[each.partition])
                    )
                    for each in ranges
                ]
        cut = slices(ranges, options.partitions_min, options.records_per_partition_max)
        # Spark reads one slice of nothing where there are none.
        return [Slice(each) for each in cut] or [Slice(OffsetRange(TopicPartition("", 0), 0, 0))]

    @staticmethod
    def _range(partition: TopicPartition, start: int, end: int) -> OffsetRange:
        if start > end:
            raise BadOption(f"the starting offset {start} of {partition} is after the ending one, {end}")
        return OffsetRange(partition, start, end)

    def read(self, partition: Slice) -> Iterator[Any]:  # type: ignore[override]
        return read_range(self._options, partition.range, self._schema, self._typed)


class NarrowingBatchReader(BatchReader):
    """Takes predicates. Spark refuses a reader that can do so unless spark.sql.python.filterPushdown.enabled is set."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds = bounds_of(filters)
        return filters


def batch_reader(options: SourceOptions, schema: StructType) -> BatchReader:
    # Where predicates are handed down, Spark plans in a worker of that name; elsewhere it has not loaded it.
    takes_predicates = _PUSHDOWN_WORKER in sys.modules
    return (NarrowingBatchReader if takes_predicates else BatchReader)(options, schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._typed = check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._cluster: Cluster | None = None
        self._latest: Offsets | None = None
        self._is_available_now = False
        self._available_now: Offsets | None = None
        self._last_trigger_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, and connections do not travel.
        return {**self.__dict__, "_cluster": None}

    def _places(self) -> Places:
        if self._cluster is None:
            self._cluster = Cluster(self._options.client)
        return Places(self._options, self._cluster)

    def initialOffset(self) -> dict[str, Any]:
        places = self._places()
        offsets = places.boundary(self._options.starting, places.partitions())
        first = places.earliest([each for each, offset in offsets.items() if offset == EARLIEST])
        return to_json({**offsets, **first})

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = from_json(start)
        end = self._latest = self._end(begun)
        options = self._options
        # With both options there is one limit to give to Spark, so which one it hands back says nothing of the other.
        if not isinstance(limit, ReadAllAvailable):
            if options.offsets_per_trigger_min is not None and self._waits_for_more(begun, end):
                return start
            if options.offsets_per_trigger_max is not None:
                new = [each for each in end if each not in begun]
                begins = {**begun, **(self._places().earliest(new) if new else {})}
                end = within_limit(options.offsets_per_trigger_max, begins, end)
        return to_json(end)

    def _end(self, begun: Offsets) -> Offsets:
        if not self._is_available_now:
            return self._places().latest_not_before(begun)
        if self._available_now is None:
            self._available_now = self._places().latest_not_before(begun)
        return self._available_now

    def _waits_for_more(self, begun: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> bool:
        """minOffsetsPerTrigger, but no longer than maxTriggerDelay. Where a stream began is written down at once."""
        now_s = time.monotonic()
        is_overdue = (
            self._last_trigger_s is None or (now_s - self._last_trigger_s) * 1000 >= self._options.trigger_delay_ms_max
        )
        new_records = sum(offset - begun.get(each, 0) for each, offset in end.items())
        if (
            not is_overdue
            and LATEST not in begun.values()
            and new_records < (self._options.offsets_per_trigger_min or 0)
        ):
            return True
        self._last_trigger_s = now_s
        return False

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Slice]:
        if start == end:
            return []
        ranges = self._places().ranges(from_json(start), from_json(end))
        cut = slices(ranges, self._options.partitions_min, self._options.records_per_partition_max)
        return [Slice(each) for each in cut]

    def read(self, partition: Slice) -> Iterator[Any]:  # type: ignore[override]
        return read_range(self._options, partition.range, self._schema, self._typed)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
