"""Reading partitions outside any group: for looking at messages and for live tails. Nothing is ever committed.

A place is where to begin, for all partitions: the start, the end, N before the end, an offset, a time.
"""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.http.errors import ApiError, bad_request

if TYPE_CHECKING:
    from penstock.http.administration import Administration

_CONFIG: Mapping[str, Any] = {
    "client.id": "penstock-http-reader",
    "group.id": "penstock-http-reader",
    "log_level": 0,
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_uncommitted",
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 64 * 1024,
}
_SLICE_RECORDS = 5_000
_PLACE = re.compile(r"start|end|-?\d{1,19}|@\d{1,16}|\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:\d\d)?)?")
TopicPartition = tuple[str, int]


class Range(NamedTuple):
    """From the first offset up to, but not including, the last."""

    first: int
    end: int


async def places(administration: "Administration", topic: str, partitions: Sequence[int], text: str) -> dict[int, int]:
    """The offset of each partition for `start`, `end`, an offset, `-N` before the end, `@ms` or an ISO time. Offsets
    are brought within what the log has. Raises ApiError."""
    if not _PLACE.fullmatch(text):
        raise bad_request(
            f"{text[:40]!r} is no place in a topic",
            "Take start, end, an offset, -N, @milliseconds or 2024-05-01T12:00Z.",
        )
    keys = [(topic, number) for number in partitions]
    ends = await administration.offsets(keys, -1)
    if text == "end":
        return {number: ends[topic, number] for number in partitions if (topic, number) in ends}
    starts = await administration.offsets(keys, -2)
    if text.startswith("@") or "T" in text or text.count("-") == 2:
        found = await administration.offsets(keys, _milliseconds(text))
        return {number: _or(found.get((topic, number), -1), end) for (_, number), end in ends.items()}
    result = {}
    for (_, number), end in ends.items():
        start = starts.get((topic, number), 0)
        wanted = start if text == "start" else end + int(text) if text.startswith("-") else int(text)
        result[number] = min(max(wanted, start), end)
    return result


def _or(offset: int, otherwise: int) -> int:
    return otherwise if offset < 0 else offset


def _milliseconds(text: str) -> int:
    if text.startswith("@"):
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as problem:
        raise bad_request(f"{text[:40]!r} is no time", "Take 2024-05-01 or 2024-05-01T12:00:00Z.") from problem
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


class Reader:
    """Blocks: for threads. A request that is given up closes it while another thread still reads, hence the lock."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str], topic: str, positions: Mapping[int, int]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer: Any = Consumer({**_CONFIG, **properties, "bootstrap.servers": bootstrap})
        self._topic = topic
        self._lock = threading.Lock()
        self._is_closed = False
        self.positions = dict(positions)
        self._consumer.assign([TopicPartition(topic, number, offset) for number, offset in positions.items()])

    def take(self, records_max: int, wait_s: float) -> list[Any]:
        """What has come since, and no ends of partitions. Waits for the first only. Raises KafkaException."""
        deadline_s = time.monotonic() + wait_s
        with self._lock:
            return [] if self._is_closed else self._taken(records_max, deadline_s)

    def _taken(self, records_max: int, deadline_s: float) -> list[Any]:
        while True:
            first = self._consumer.poll(max(0.0, deadline_s - time.monotonic()))
            if first is None:
                return []
            found = [first] if records_max == 1 else [first, *self._consumer.consume(records_max - 1, 0)]
            messages = [one for one in found if not self._is_notice(one)]
            for one in messages:
                self.positions[one.partition()] = one.offset() + 1
            if messages or time.monotonic() >= deadline_s:
                return messages

    def read_ranges(self, ranges: Mapping[int, Range], deadline_s: float) -> Iterator[list[Any]]:
        """All messages of the ranges, in slices, until they are through or the time is up. Raises KafkaException."""
        from confluent_kafka import KafkaError
        from confluent_kafka import TopicPartition as Partition

        open_ends = {number: one.end for number, one in ranges.items() if one.first < one.end}
        while open_ends and time.monotonic() < deadline_s:
            with self._lock:
                if self._is_closed:
                    return
                found = self._consumer.consume(_SLICE_RECORDS, 0.05)
            messages = []
            done = set()
            for one in found:
                number = one.partition()
                error = one.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        done.add(number)
                    else:
                        self._is_notice(one)
                    continue
                end = open_ends.get(number)
                if end is None:
                    continue
                if one.offset() < end:
                    messages.append(one)
                    self.positions[number] = one.offset() + 1
                if one.offset() >= end - 1:
                    done.add(number)
            for number in done & open_ends.keys():
                self.positions[number] = max(self.positions[number], open_ends.pop(number))
                self._consumer.pause([Partition(self._topic, number)])
            if messages:
                yield messages

    def skip_to_end(self, behind_max: int) -> int:
        """Leaves out what there is no time for; how many that were."""
        from confluent_kafka import TopicPartition as Partition

        skipped = 0
        for number, position in self.positions.items():
            _, end = self._consumer.get_watermark_offsets(Partition(self._topic, number), cached=True)
            if end - position > behind_max:
                self._consumer.seek(Partition(self._topic, number, end))
                self.positions[number] = end
                skipped += end - position
        return skipped

    @staticmethod
    def _is_notice(message: Any) -> bool:
        from confluent_kafka import KafkaError, KafkaException

        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(error)
        return True

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._consumer.close()


def wanted_partitions(text: str | None, count: int, topic: str) -> list[int]:
    """`0,3` or nothing for all. Raises ApiError."""
    if not text:
        return list(range(count))
    numbers = []
    for piece in text.split(","):
        if not (piece.isascii() and piece.isdecimal() and len(piece) < 10):
            raise bad_request(f"{piece[:40]!r} is not a partition", "Take numbers with commas between them.")
        if int(piece) >= count:
            raise ApiError(40402, f"topic '{topic}' has no partition {piece}", f"Take 0 to {count - 1}.")
        numbers.append(int(piece))
    return sorted(set(numbers))
