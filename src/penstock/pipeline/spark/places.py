"""From what options say to offsets: which partitions there are, where they start and end, and what went missing."""

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping

from penstock.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from penstock.pipeline.spark.offsets import BadOption, Offsets
from penstock.pipeline.spark.options import Boundary, SourceOptions
from penstock.pipeline.spark.ranges import OffsetRange

log = logging.getLogger("penstock.spark")

HOW_TO_GO_ON = 'To go on without the lost records, set the option "failOnDataLoss" to "false".'


class DataLoss(Exception):
    """Records that were to be read are not there any more, and the job wants to know."""


class Places:
    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster

    def partitions(self) -> list[TopicPartition]:
        """Those that are read now. Raises BadOption for topics and partitions that do not exist."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            matches = re.compile(subscription.pattern).fullmatch
            found = {name: topic for name, topic in self._cluster.topics().items() if matches(name)}
            # As a consumer's pattern, it does not reach internal topics.
            return [
                TopicPartition(name, i)
                for name in sorted(found)
                for i in found[name].leaders
                if not found[name].is_internal
            ]
        if subscription.assigned is not None:
            self._must_exist({each.topic for each in subscription.assigned}, subscription.assigned)
            return list(subscription.assigned)
        assert subscription.topics is not None
        known = self._must_exist(subscription.topics, ())
        return sorted(TopicPartition(name, index) for name in subscription.topics for index in known[name])

    def _must_exist(self, names: Collection[str], partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
        known = {name: list(topic.leaders) for name, topic in self._cluster.topics(names).items()}
        missing = sorted(set(names) - known.keys())
        if missing:
            where = self._options.client.bootstrap_servers
            raise BadOption(f"there is no topic '{missing[0]}' at {where}; create it before it is read")
        for partition in partitions:
            if partition.partition not in known[partition.topic]:
                has = len(known[partition.topic])
                raise BadOption(f"assign: {partition} does not exist; the topic has {has} partitions")
        return known

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """For a reader of committed data that is the end of what is decided."""
        committed = self._options.fetch.read_committed
        return self._cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=committed)

    def latest_not_before(self, known: Mapping[TopicPartition, int]) -> Offsets:
        """The ends of all partitions now. An end before what was read already is asked for again: a new leader may not
        know better for a moment."""
        options = self._options
        tries = options.offset_fetch_tries_max
        while True:
            ends = self.latest(self.partitions())
            tries -= 1
            wrong = [each for each, offset in known.items() if ends.get(each, offset) < offset]
            if not wrong or tries <= 0:
                return ends
            time.sleep(options.offset_fetch_interval_ms / 1000)

    def boundary(self, boundary: Boundary, partitions: Collection[TopicPartition]) -> Offsets:
        """Offsets, of which some may be EARLIEST or LATEST. Raises BadOption."""
        if boundary.everywhere is not None:
            return dict.fromkeys(partitions, boundary.everywhere)
        if boundary.offsets is not None:
            self._must_match(boundary.offsets, partitions, boundary.option)
            return dict(boundary.offsets)
        if boundary.times_ms is not None:
            self._must_match(boundary.times_ms, partitions, boundary.option)
            times_ms = dict(boundary.times_ms)
        else:
            assert boundary.time_ms is not None
            times_ms = dict.fromkeys(partitions, boundary.time_ms)
        found = self._cluster.list_offsets(times_ms, read_committed=self._options.fetch.read_committed)
        for partition, offset in found.items():
            if offset < 0:
                if not boundary.is_latest_if_too_late:
                    raise BadOption(
                        f"{boundary.option}: {partition} has no record at or after {times_ms[partition]}; "
                        "startingOffsetsByTimestampStrategy 'latest' would start at its end"
                    )
                found[partition] = LATEST
        return found

    @staticmethod
    def _must_match(named: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], option: str) -> None:
        if set(named) != set(partitions):
            given, there = (", ".join(map(str, sorted(each))) for each in (named, partitions))
            raise BadOption(
                f"{option} must name all partitions that are read, with -2 for earliest and -1 for latest where it "
                f"does not matter; it names {given}; there are {there}"
            )

    def resolved(self, offsets: Mapping[TopicPartition, int]) -> Offsets:
        """EARLIEST and LATEST replaced by what they are now."""
        first = self.earliest([each for each, offset in offsets.items() if offset == EARLIEST])
        last = self.latest([each for each, offset in offsets.items() if offset == LATEST])
        return {**offsets, **first, **last}

    def time_starts(self, partitions: Collection[TopicPartition], time_ms: int) -> Offsets:
        """The first offset at or after the time; LATEST where there is none."""
        return self._cluster.list_offsets(dict.fromkeys(partitions, time_ms))

    def ranges(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """What lies between the offsets of two micro-batches. Raises DataLoss if the job wants to know."""
        report = self.reporter()
        new = [each for each in end if each not in start]
        begins = {**start, **self.earliest(new)}
        for partition in new:
            if begins[partition] != 0:
                report(f"the new partition {partition} starts at offset {begins[partition]} instead of 0")
        gone = sorted(each for each in start if each not in end)
        if gone:
            report(f"{', '.join(map(str, gone))} are gone")
        ranges = []
        for partition, last in end.items():
            first = begins[partition]
            if first == LATEST:
                # Where the stream began: its first micro-batch only finds out where that is.
                continue
            if last < first:
                report(f"the end of {partition} went back from {first} to {last}")
            ranges.append(OffsetRange(partition, first, last))
        return ranges

    def reporter(self) -> Callable[[str], None]:
        def report(what: str) -> None:
            if self._options.fails_on_data_loss:
                raise DataLoss(f"{what}: some records may have been missed. {HOW_TO_GO_ON}")
            log.warning("%s: some records may have been missed", what)

        return report
