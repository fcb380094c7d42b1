"""The topic `_schemas`: one partition, compacted, read from its beginning by a thread of its own.

What is read is replayed on the event loop, so that only the loop changes the store. Who has written waits until the
reader has come past the record: answers rest on what everybody else reads too.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from penstock.http.registry import errors
from penstock.http.registry.records import Record, decode, encode

log = logging.getLogger("penstock.registry")

WRITE_SECONDS_MAX = 10.0
_REPLICAS_MAX = 3
_BATCH = 500
_POLL_SECONDS = 0.5

ClientConfig = dict[str, Any]


class SchemasTopic:
    def __init__(self, config: ClientConfig, name: str, replay: Callable[[Record], None]) -> None:
        self._config = config
        self._name = name
        self._replay = replay
        self._loop = asyncio.get_running_loop()
        # The offset after the last record that was replayed.
        self._next_offset = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._is_stopping = threading.Event()
        self._reader: threading.Thread | None = None
        self._producer: Producer | None = None
        self._tail: Consumer | None = None

    async def start(self) -> None:
        """Returns when all that was in the topic is replayed. Raises RegistryError if there is no cluster to ask."""
        await asyncio.to_thread(self._prepare)
        self._reader = threading.Thread(target=self._read, name="schemas-reader", daemon=True)
        self._reader.start()
        await self.catch_up()

    async def stop(self) -> None:
        self._is_stopping.set()
        for _, future in self._waiting:
            future.cancel()
        if self._reader is not None:
            await asyncio.to_thread(self._reader.join)
        if self._producer is not None:
            await asyncio.to_thread(self._producer.flush, 1.0)
        if self._tail is not None:
            await asyncio.to_thread(self._tail.close)

    async def catch_up(self) -> None:
        """Waits until everything that is in the topic now is replayed."""
        await self._wait_for(await asyncio.to_thread(self._end_offset))

    async def write(self, records: list[Record]) -> None:
        """Returns when the records are replayed."""
        await self._wait_for(await asyncio.to_thread(self._produce, records) + 1)

    async def _wait_for(self, offset: int) -> None:
        if self._next_offset >= offset:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offset, future))
        try:
            while not future.done():
                reached = self._next_offset
                await asyncio.wait({future}, timeout=WRITE_SECONDS_MAX)
                # A long topic may take its time, as long as it goes on.
                if not future.done() and self._next_offset == reached:
                    raise errors.timed_out("Reading the schemas topic")
        finally:
            self._waiting = [item for item in self._waiting if item[1] is not future]

    # In threads: everything below.

    def _prepare(self) -> None:
        try:
            self._create()
            self._producer = Producer(
                self._config | {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "delivery.timeout.ms": 10000}
            )
            self._tail = Consumer(self._config | {"group.id": "unused", "enable.auto.commit": False})
            self._await_partition()
        except KafkaException as problem:
            raise errors.store_failed(_text(problem)) from None

    def _create(self) -> None:
        admin = AdminClient(self._config)
        metadata = admin.list_topics(timeout=WRITE_SECONDS_MAX)
        if self._name in metadata.topics and metadata.topics[self._name].error is None:
            self._check_policy(admin)
            return
        topic = NewTopic(
            self._name,
            num_partitions=1,
            replication_factor=min(_REPLICAS_MAX, len(metadata.brokers)),
            config={"cleanup.policy": "compact"},
        )
        try:
            admin.create_topics([topic])[self._name].result(WRITE_SECONDS_MAX)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _check_policy(self, admin: AdminClient) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._name)
        configs = admin.describe_configs([resource])[resource].result(WRITE_SECONDS_MAX)
        policy = configs["cleanup.policy"].value
        if policy != "compact":
            raise errors.store_failed(
                f"the topic {self._name} has cleanup.policy={policy}, which would lose schemas; set it to compact"
            )

    def _await_partition(self) -> None:
        """A topic that was just created may have no leader yet."""
        deadline = time.monotonic() + WRITE_SECONDS_MAX
        while True:
            try:
                self._end_offset()
                return
            except (KafkaException, errors.RegistryError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _end_offset(self) -> int:
        assert self._tail is not None
        try:
            _, end = self._tail.get_watermark_offsets(TopicPartition(self._name, 0), timeout=WRITE_SECONDS_MAX)
        except KafkaException as problem:
            raise errors.store_failed(_text(problem)) from None
        return int(end)

    def _produce(self, records: list[Record]) -> int:
        """The offset of the last record."""
        assert self._producer is not None
        results: list[tuple[KafkaError | None, int]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            results.append((error, message.offset() or 0))

        try:
            for record in records:
                key, value = encode(record)
                self._producer.produce(self._name, value, key, partition=0, on_delivery=delivered)
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise errors.RegistryError(42209, "The schema is larger than the topic's records may be.") from None
            raise errors.store_failed(_text(problem)) from None
        self._producer.flush(WRITE_SECONDS_MAX)
        if len(results) < len(records):
            raise errors.timed_out("Writing to the schemas topic")
        for error, _ in results:
            if error is not None:
                if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise errors.RegistryError(42209, "The schema is larger than the topic's records may be.")
                raise errors.store_failed(error.str())
        return max(offset for _, offset in results)

    def _read(self) -> None:
        consumer = Consumer(
            self._config
            | {
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
                "fetch.error.backoff.ms": 50,
                "allow.auto.create.topics": False,
                # Compaction may have taken the last records away: only the end itself says that nothing follows.
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(self._name, 0, OFFSET_BEGINNING)])
            while not self._is_stopping.is_set():
                first = consumer.poll(_POLL_SECONDS)
                if first is None:
                    continue
                messages = [first, *consumer.consume(_BATCH, timeout=0)]
                decoded = [item for message in messages if (item := _decoded(message)) is not None]
                with contextlib.suppress(RuntimeError):
                    # The loop may be closed already when the process ends.
                    self._loop.call_soon_threadsafe(self._on_read, decoded)
        finally:
            consumer.close()

    # On the loop.

    def _on_read(self, decoded: list[tuple[int, Record | None]]) -> None:
        for offset, record in decoded:
            if record is not None:
                self._replay(record)
            self._next_offset = max(self._next_offset, offset + 1)
        for offset, future in self._waiting:
            if self._next_offset >= offset and not future.done():
                future.set_result(None)


def _decoded(message: Message) -> tuple[int, Record | None] | None:
    error = message.error()
    if error is not None and error.code() == KafkaError._PARTITION_EOF:
        return (message.offset() or 0) - 1, None
    if error is not None:
        log.warning("the schemas topic cannot be read at the moment: %s", error.str())
        return None
    key, value, offset = message.key(), message.value(), message.offset()
    assert offset is not None
    try:
        record = None if key is None else decode(key, value, message.timestamp()[1])
    except (ValueError, KeyError, TypeError) as problem:
        log.error("the record at offset %d of the schemas topic is not understood, it is ignored: %s", offset, problem)
        return offset, None
    return offset, record


def _text(problem: KafkaException) -> str:
    error = problem.args[0]
    return error.str() if isinstance(error, KafkaError) else str(error)
