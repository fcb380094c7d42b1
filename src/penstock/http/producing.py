"""Records to the cluster: many at a time, with one future for each request and none for each record.

librdkafka gathers, retries and orders the records; its delivery reports are fetched from the event loop, by a timer
that runs only while something is on its way. So there is no thread of ours and no lock, and what a report costs is one
small call for each record.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from penstock.http.errors import ApiError, from_kafka, no_partition

# How long a request waits for the cluster before it fails.
DELIVERY_SECONDS_MAX = 30.0
_METADATA_SECONDS_MAX = 5.0
_KNOWN_TOPIC_SECONDS = 30.0
_KNOWN_TOPICS_MAX = 10_000
_POLL_SECONDS = 0.001
_CONFIG: Mapping[str, Any] = {
    "client.id": "penstock-http",
    "log_level": 0,
    # What is acknowledged survives, once and in order.
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 1,
    # Keys go where Java's clients put them.
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": int(DELIVERY_SECONDS_MAX * 1000),
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512 * 1024,
    # What brokers take; they say so when a topic takes less.
    "message.max.bytes": 100_000_000,
    "topic.metadata.refresh.interval.ms": 60_000,
}

_PARTITION_OF = itemgetter(3)


Headers = list[tuple[str, bytes | None]]


# Key, value, headers, partition or -1, timestamp or 0. A plain tuple: there are 100,000 of them a second.
Outgoing = tuple[bytes | str | None, bytes | None, Headers | None, int, int]


class Delivered(NamedTuple):
    """`error` is None for a record that is safe, and has the reason where it is not."""

    partition: int
    offset: int
    timestamp: int
    error: Any = None


class Batch:
    """The records of one request on their way. `reports` has librdkafka's message for each, or its error."""

    __slots__ = ("_left", "done", "failures", "reports")

    def __init__(self, count: int, done: "asyncio.Future[None]") -> None:
        self.reports: list[Any] = [None] * count
        self.failures = 0
        self._left = count
        self.done = done

    def report(self, position: int, error: Any, message: Any) -> None:
        # Hot: once for every record.
        if error is None:
            self.reports[position] = message
        else:
            self.reports[position] = error
            self.failures += 1
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)

    @property
    def is_done(self) -> bool:
        return not self._left

    def delivered(self) -> list[Delivered]:
        if not self.failures:
            return [Delivered(one.partition(), one.offset(), one.timestamp()[1]) for one in self.reports]
        return [_delivered(one) for one in self.reports]


def _delivered(report: Any) -> Delivered:
    from confluent_kafka import KafkaError

    if isinstance(report, KafkaError):
        return Delivered(-1, -1, -1, report)
    return Delivered(report.partition(), report.offset(), report.timestamp()[1])


class Producing:
    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self._config = {**_CONFIG, **properties, "bootstrap.servers": bootstrap}
        self._producer = self._new_producer()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # Partition counts, and until when they are believed.
        self._known: dict[str, tuple[int, float]] = {}
        self.records_total = 0
        self.failures_total = 0

    def _new_producer(self) -> Any:
        from confluent_kafka import Producer

        return Producer(self._config)

    async def send(self, topic: str, records: Sequence[Outgoing]) -> Batch:
        """Answers when each record is acknowledged or has failed. Raises ApiError where nothing was sent."""
        await self._check_topic(topic, max(map(_PARTITION_OF, records), default=-1))
        batch = Batch(len(records), self._loop.create_future())
        await self._queue(topic, records, batch)
        self.records_total += len(records)
        if not batch.is_done:
            if self._timer is None:
                self._timer = self._loop.call_later(_POLL_SECONDS, self._poll)
            await batch.done
        if batch.failures:
            self._note_failures(batch)
        return batch

    async def _queue(self, topic: str, records: Sequence[Outgoing], batch: Batch) -> None:
        """One by one: librdkafka's call for many wants a dictionary for each, which costs more than it saves."""
        from confluent_kafka import KafkaException

        produce, report = self._producer.produce, batch.report
        for position, (key, value, headers, partition, timestamp) in enumerate(records):
            while True:
                try:
                    produce(topic, value, key, partition, partial(report, position), None, timestamp, headers)
                except BufferError:
                    await self._wait_for_room()
                    continue
                except KafkaException as problem:
                    report(position, problem.args[0], None)
                break

    async def _wait_for_room(self) -> None:
        """The cluster is slower than our clients: they wait, and TCP makes theirs wait."""
        self._poll()
        await asyncio.sleep(_POLL_SECONDS * 5)

    def _note_failures(self, batch: Batch) -> None:
        self.failures_total += batch.failures
        errors = [one.error for one in batch.delivered() if one.error is not None]
        if any(error.fatal() for error in errors) and not len(self._producer):
            # An idempotent producer that lost its place is of no more use; a new one starts a new sequence.
            self._producer = self._new_producer()

    async def send_one(self, topic: str, record: Outgoing) -> Delivered:
        """Raises ApiError when it failed."""
        (result,) = (await self.send(topic, (record,))).delivered()
        if result.error is not None:
            raise from_kafka(result.error)
        return result

    def _poll(self) -> None:
        """Fetches delivery reports, which call `Batch.report` from here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._producer.poll(0)
        if len(self._producer):
            self._timer = self._loop.call_later(_POLL_SECONDS, self._poll)

    async def _check_topic(self, topic: str, partition: int) -> None:
        """That the topic is there, or comes to be by our asking where the cluster makes topics on demand; so that a
        request for one that is not fails at once, not after all retries."""
        known = self._known.get(topic)
        if known is None or known[1] < time.monotonic() or partition >= known[0]:
            count = await asyncio.to_thread(self._partition_count, topic)
            if len(self._known) >= _KNOWN_TOPICS_MAX:
                self._known.clear()
            if count:
                self._known[topic] = count, time.monotonic() + _KNOWN_TOPIC_SECONDS
            if count and partition >= count:
                raise no_partition(topic, partition, count)

    def _partition_count(self, topic: str) -> int:
        """0 while the topic is still being made."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            metadata = self._producer.list_topics(topic, timeout=_METADATA_SECONDS_MAX).topics[topic]
        except KafkaException as problem:
            raise from_kafka(problem.args[0]) from problem
        if metadata.error is not None and metadata.error.code() != KafkaError.LEADER_NOT_AVAILABLE:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and self._makes_topics(topic):
                return 0
            raise from_kafka(metadata.error, f"topic '{topic}'")
        return len(metadata.partitions)

    def _makes_topics(self, topic: str) -> bool:
        """Kafka says "unknown" once also of a topic that it makes on demand; the second answer is the true one."""
        from confluent_kafka import KafkaException

        try:
            second = self._producer.list_topics(topic, timeout=_METADATA_SECONDS_MAX).topics[topic]
        except KafkaException:
            return False
        return second.error is None

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.to_thread(self._producer.flush, 5.0)


def failure_of(batch: Batch) -> ApiError | None:
    """Where nothing of a batch arrived: why."""
    if batch.failures and batch.failures == len(batch.reports):
        return from_kafka(batch.reports[0])
    return None
