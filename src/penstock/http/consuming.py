"""HTTP consumers: each a member of its group, kept here between requests and closed when nobody comes any more.

A consumer blocks while it waits for records, so it does that in a thread; one request at a time polls it. Nothing is
committed unless the client says so.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.http.errors import CONSUMER_EXISTS, CONSUMER_NOT_FOUND, WRONG_STATE, ApiError, from_kafka
from penstock.http.formats import Format

log = logging.getLogger("penstock.http.consumers")

START = -2
END = -1
_SWEEP_SECONDS = 1.0
# How many records are taken at once where nothing is known of their size.
_SLICE_RECORDS = 500
_CALL_SECONDS_MAX = 10.0
_CONFIG: Mapping[str, Any] = {
    "client.id": "penstock-http",
    "log_level": 0,
    # Joins at once, where the classic protocol waits for others first.
    "group.protocol": "consumer",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32 * 1024,
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 1024 * 1024,
}


class Instance:
    """One consumer. Its blocking calls run in `threads`."""

    def __init__(self, group: str, name: str, format: Format, config: dict[str, Any], threads: ThreadPoolExecutor):
        from confluent_kafka import Consumer, KafkaException

        self.group = group
        self.name = name
        self.format = format
        self._threads = threads
        try:
            self._consumer = Consumer(config)
        except KafkaException as problem:
            raise from_kafka(problem.args[0]) from problem
        self._is_busy = asyncio.Lock()
        self._seeks: dict[tuple[str, int], int] = {}
        self._assigned: set[tuple[str, int]] = set()
        self.is_assigned_by_hand = False
        self.topics: list[str] = []
        self.last_used_s = time.monotonic()
        self.is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self._is_busy.locked()

    async def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """A blocking call of librdkafka. Raises ApiError."""
        from confluent_kafka import KafkaException

        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: function(*arguments, **options))
        except KafkaException as problem:
            raise from_kafka(problem.args[0]) from problem
        finally:
            self.last_used_s = time.monotonic()

    def _check_open(self) -> None:
        if self.is_closed:
            raise ApiError(CONSUMER_NOT_FOUND, "the consumer was closed meanwhile", "Subscribe again.")

    # What it reads

    async def subscribe(self, topics: Sequence[str]) -> None:
        self.is_assigned_by_hand = False
        self.topics = list(topics)
        await self._call(
            self._consumer.subscribe,
            self.topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    async def unsubscribe(self) -> None:
        self.topics = []
        self._assigned.clear()
        await self._call(self._consumer.unassign if self.is_assigned_by_hand else self._consumer.unsubscribe)
        self.is_assigned_by_hand = False

    async def assign(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Partitions by hand, without the group's say."""
        from confluent_kafka import TopicPartition

        if self.topics:
            raise ApiError(WRONG_STATE, "the consumer has a subscription", "Delete the subscription first.")
        self.is_assigned_by_hand = True
        self._assigned = set(partitions)
        await self._call(self._consumer.assign, [TopicPartition(*one) for one in partitions])

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        # In the polling thread. Where somebody asked to seek before there was an assignment, that is where it starts.
        for partition in partitions:
            key = (partition.topic, partition.partition)
            self._assigned.add(key)
            if key in self._seeks:
                partition.offset = self._seeks.pop(key)
        consumer.incremental_assign(partitions)

    def _on_revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        for partition in partitions:
            self._assigned.discard((partition.topic, partition.partition))

    async def assignment(self) -> list[tuple[str, int]]:
        found = await self._call(self._consumer.assignment)
        return sorted((one.topic, one.partition) for one in found)

    # Reading

    async def poll(self, records_max: int, wait_s: float, bytes_max: int) -> list[Any]:
        """librdkafka's messages, no more than asked for. Raises ApiError."""
        async with self._is_busy:
            if not self.topics and not self.is_assigned_by_hand:
                raise ApiError(WRONG_STATE, "the consumer has no subscription", "Subscribe to topics first.")
            messages: list[Any] = await self._call(self._poll, records_max, wait_s, bytes_max)
            return messages

    def _poll(self, records_max: int, wait_s: float, bytes_max: int) -> list[Any]:
        self._apply_seeks()
        deadline_s = time.monotonic() + wait_s
        messages: list[Any] = []
        while not messages:
            first = self._consumer.poll(max(0.0, deadline_s - time.monotonic()))
            if first is None:
                return messages
            self._take(first, messages)
            if not messages and time.monotonic() >= deadline_s:
                return messages
        size = len(messages[0])
        while len(messages) < records_max and size < bytes_max:
            affordable = (bytes_max - size) * len(messages) // max(size, 1)
            wanted = min(records_max - len(messages), max(1, min(affordable, len(messages) * _SLICE_RECORDS)))
            more = self._consumer.consume(wanted, 0)
            if not more:
                break
            for message in more:
                if self._take(message, messages):
                    size += len(message)
        return messages

    @staticmethod
    def _take(message: Any, messages: list[Any]) -> bool:
        from confluent_kafka import KafkaError, KafkaException

        error = message.error()
        if error is None:
            messages.append(message)
            return True
        # A topic that is not there yet may come; the reader need not care.
        is_harmless = error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART) or error.retriable()
        if not is_harmless and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            raise KafkaException(error)
        return False

    # Where it reads

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Takes effect with the next poll."""
        key = (topic, partition)
        if self._assigned and key not in self._assigned:
            raise ApiError(
                WRONG_STATE,
                f"partition {partition} of '{topic}' is read by another consumer of the group",
                "Seek from the consumer that reads it; its polls show which.",
            )
        self._check_open()
        self._seeks[key] = offset
        self.last_used_s = time.monotonic()

    def _apply_seeks(self) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        for key in [one for one in self._seeks if one in self._assigned]:
            partition = TopicPartition(*key, self._seeks.pop(key))
            try:
                self._consumer.seek(partition)
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError._STATE:
                    raise
                # Assigned, but fetching has not begun: it begins there.
                self._consumer.incremental_unassign([partition])
                self._consumer.incremental_assign([partition])

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None) -> dict[tuple[str, int], int]:
        """None: everything that was polled. What was committed, by topic and partition. Raises ApiError."""
        from confluent_kafka import TopicPartition

        if offsets is None:
            committed = await self._call(self._consumer.commit, asynchronous=False)
        else:
            wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
            committed = await self._call(self._consumer.commit, offsets=wanted, asynchronous=False)
        for one in committed:
            if one.error is not None:
                raise from_kafka(one.error, f"partition {one.partition} of '{one.topic}'")
        return {(one.topic, one.partition): one.offset for one in committed}

    async def committed(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, str]]:
        """Offset and metadata; -1001 where nothing is committed."""
        from confluent_kafka import TopicPartition

        found = await self._call(
            self._consumer.committed, [TopicPartition(*one) for one in partitions], timeout=_CALL_SECONDS_MAX
        )
        return {(one.topic, one.partition): (one.offset, one.metadata or "") for one in found}

    async def close(self) -> None:
        async with self._is_busy:
            if not self.is_closed:
                await self._call(self._consumer.close)
                self.is_closed = True


class Consumers:
    """All consumers of this process, by group and instance."""

    def __init__(
        self, bootstrap: str, properties: Mapping[str, str], *, idle_ms_max: int, consumers_max: int, tails_max: int
    ) -> None:
        self._config = {**_CONFIG, **properties, "bootstrap.servers": bootstrap}
        self._idle_seconds_max = idle_ms_max / 1000
        self._consumers_max = consumers_max
        self._instances: dict[tuple[str, str], Instance] = {}
        self.threads = ThreadPoolExecutor(consumers_max + tails_max + 8, "http-consumer")
        self._sweeper = asyncio.create_task(self._close_idle())

    @property
    def count(self) -> int:
        return len(self._instances)

    def get(self, group: str, name: str) -> Instance:
        """Raises ApiError."""
        found = self._instances.get((group, name))
        if found is None:
            raise ApiError(
                CONSUMER_NOT_FOUND,
                f"group '{group}' has no consumer '{name}' here",
                "Subscribe first: POST /consumers/{group}/subscribe. Idle consumers are closed "
                f"after {self._idle_seconds_max:.0f} s.",
            )
        return found

    def find(self, group: str, name: str) -> Instance | None:
        return self._instances.get((group, name))

    def make(self, group: str, name: str, format: Format, properties: Mapping[str, Any]) -> Instance:
        """Raises ApiError where there is one by that name, or too many at all."""
        if (group, name) in self._instances:
            raise ApiError(
                CONSUMER_EXISTS, f"group '{group}' has a consumer '{name}' here", "Use it, or take another name."
            )
        if len(self._instances) >= self._consumers_max:
            raise ApiError(
                429, f"there are {self._consumers_max} consumers already", "Delete some, or raise --consumers-max."
            )
        made = Instance(group, name, format, {**self._config, **properties, "group.id": group}, self.threads)
        self._instances[group, name] = made
        return made

    async def delete(self, group: str, name: str) -> None:
        """Leaves the group, so that others take over at once. Raises ApiError."""
        instance = self.get(group, name)
        del self._instances[group, name]
        await instance.close()

    async def delete_group(self, group: str) -> int:
        names = [name for of_group, name in self._instances if of_group == group]
        for name in names:
            await self.delete(group, name)
        return len(names)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._idle_seconds_max / 2))
            now_s = time.monotonic()
            for key, instance in list(self._instances.items()):
                if instance.is_idle and now_s - instance.last_used_s > self._idle_seconds_max:
                    log.info("closed the idle consumer '%s' of group '%s'", key[1], key[0])
                    try:
                        await self.delete(*key)
                    except ApiError as problem:
                        log.warning("consumer '%s' of group '%s' did not close well: %s", key[1], key[0], problem)

    async def close(self) -> None:
        self._sweeper.cancel()
        instances = list(self._instances.values())
        self._instances.clear()
        await asyncio.gather(*(instance.close() for instance in instances), return_exceptions=True)
        self.threads.shutdown(wait=False, cancel_futures=True)
