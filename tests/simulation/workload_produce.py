"""Producers and readers of plain topics: idempotent ones that retry as Kafka's do, unsafe ones, and both kinds of
readers, which hold every answer against what must be true of it."""

import asyncio
from collections import deque
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.protocol.batch import BatchHeader
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record, build_batch, iterate_records
from tests.simulation.client import (
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
    Damaged,
    SimClient,
    Unavailable,
    batches_of,
    visible_batches,
)
from tests.simulation.cluster import EPOCH_MS, SimCluster
from tests.simulation.history import History, TopicPartition, Violation, Write

_GIVE_UP_SECONDS = 20.0
_WINDOW_BATCHES = 5
_EARLIEST = -2
# A batch that was refused so was not appended by this request, though perhaps by an earlier one.
RETRIABLE = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.leader_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
    }
)


class Stop:
    """Set when producers shall come to their end."""

    def __init__(self) -> None:
        self.is_set = False


def produce_body(key: TopicPartition, batch: bytes | bytearray, *, acks: int, transactional_id: str | None) -> Struct:
    partition_data = [Struct(index=key[1], records=batch)]
    return Struct(
        transactional_id=transactional_id,
        acks=acks,
        timeout=3000,
        topic_data=[Struct(name=key[0], partition_data=partition_data)],
    )


class Batch(NamedTuple):
    key: TopicPartition
    writes: list[Write]
    data: bytes


class Producer:
    """Of one topic. With `acks` of -1 it is idempotent, and sends until it knows; else each batch goes out once. Up to
    `in_flight_max` of them are on their way at a time."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        stop: Stop,
        name: str,
        topic: str,
        partitions: int,
        *,
        acks: int,
        in_flight_max: int = 1,
    ) -> None:
        self.client = SimClient(cluster, name)
        self._history = history
        self._stop = stop
        self._topic = topic
        self._partitions = partitions
        self._acks = acks
        self._in_flight_max = in_flight_max
        self._keys = 4 if topic in history.compacted_topics else 0
        self.is_done = False
        self._producer_id = -1
        self._epoch = -1
        self._numbers: dict[TopicPartition, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        # The last batches that were acknowledged, to be sent once more, as a retry that was held up would be.
        self._recent: dict[TopicPartition, deque[tuple[bytes, int]]] = {}
        self.client.run(self._run)

    async def _run(self) -> None:
        chance = self.client.random
        pace_s = chance.choice((0.2, 0.5, 1.2)) * self.client.cluster.pace
        while not self._stop.is_set:
            keys = [(self._topic, chance.randrange(self._partitions))]
            if self._in_flight_max > 1:
                more = chance.randrange(self._in_flight_max)
                keys += [(self._topic, chance.randrange(self._partitions)) for _ in range(more)]
            if self._acks == -1 and self._producer_id < 0:
                await self._initialise()
            await self._produce([(key, chance.randint(1, 4)) for key in keys])
            await self.client.pause(pace_s)
        self.is_done = True

    async def _initialise(self) -> None:
        body = Struct(transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)
        while not self._stop.is_set:
            try:
                answer = await self.client.ask_any(INIT_PRODUCER_ID, body, 4)
            except Unavailable:
                await self.client.pause()
                continue
            if not answer.error_code:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                self._recent.clear()
                return
            await self.client.pause()

    def _make(self, key: TopicPartition, count: int, before: int) -> Batch:
        """`before`: how many records go before it that are still to be acknowledged."""
        writes = []
        chance = self.client.random
        for _ in range(count):
            number = self._numbers[key] = self._numbers.get(key, 0) + 1
            value = f"{self.client.name} {key[1]} {number}".encode()
            record_key = f"k{chance.randrange(self._keys)}".encode() if self._keys else None
            write = Write(value, record_key, key, self._acks, self.client.name, number)
            self._history.sent(write)
            writes.append(write)
        now_ms = EPOCH_MS + int(self.client.now_s * 1000)
        batch = build_batch(
            [Record(index, now_ms, write.key, write.value) for index, write in enumerate(writes)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get(key, 0) + before if self._producer_id >= 0 else -1,
        )
        return Batch(key, writes, bytes(batch))

    async def _produce(self, wanted: list[tuple[TopicPartition, int]]) -> None:
        """A batch of so many records for each. What is not known to be there is sent again, in its order."""
        batches: list[Batch] = []
        for key, count in wanted:
            before = sum(len(batch.writes) for batch in batches if batch.key == key)
            batches.append(self._make(key, count, before))
        give_up_s = self.client.now_s + _GIVE_UP_SECONDS
        while True:
            unsettled: list[Batch] = []
            for batch, answer in zip(batches, await self._send_all(batches), strict=True):
                follows_unsettled = any(batch.key == other.key for other in unsettled)
                if not self._is_settled(batch, answer, follows_unsettled=follows_unsettled):
                    unsettled.append(batch)
            batches = unsettled
            if not batches or self._acks != -1:
                return
            if self.client.now_s > give_up_s or self._stop.is_set:
                # Nobody knows whether it is there: what comes next must not depend on it.
                self._producer_id = -1
                return
            for batch in batches:
                self.client.leaders.pop(batch.key, None)
            await self.client.pause()

    def _is_settled(self, batch: Batch, answer: Any, *, follows_unsettled: bool) -> bool:
        """`follows_unsettled`: one before it, for the same partition, was not taken, or nothing was heard of it."""
        code = None if answer is None else ErrorCode(answer.error_code)
        if code == ErrorCode.none:
            self._acknowledged(batch, answer.base_offset)
            return True
        if code == ErrorCode.duplicate_sequence_number:
            self._sequences[batch.key] = self._sequences.get(batch.key, 0) + len(batch.writes)
            return True
        is_gap = code == ErrorCode.out_of_order_sequence_number and follows_unsettled
        if code is not None and code not in RETRIABLE and not is_gap:
            raise Violation(10, "appended once", f"{self.client.name} was told {code.name} for {batch.key}")
        return False

    async def _send_all(self, batches: list[Batch]) -> list[Any]:
        """All on their way at once; the answers, None for none."""
        if len(batches) == 1:
            return [await self._send(batches[0].key, batches[0].data)]
        try:
            # First of all, so that nothing comes between them.
            for batch in batches:
                await self.client.leader_of(batch.key)
        except Unavailable:
            return [None] * len(batches)
        return await asyncio.gather(*[self._send(batch.key, batch.data) for batch in batches])

    async def _send(self, key: TopicPartition, batch: bytes) -> Any:
        """The partition's answer; None for none."""
        body = produce_body(key, batch, acks=self._acks, transactional_id=None)
        try:
            answer = await self.client.ask(await self.client.leader_of(key), PRODUCE, body, 11)
        except Unavailable:
            return None
        return answer.responses[0].partition_responses[0]

    def _acknowledged(self, batch: Batch, base_offset: int) -> None:
        key = batch.key
        for index, write in enumerate(batch.writes):
            self._history.acked(write, base_offset + index)
        if self._producer_id < 0:
            return
        self._sequences[key] = self._sequences.get(key, 0) + len(batch.writes)
        recent = self._recent.setdefault(key, deque(maxlen=_WINDOW_BATCHES))
        recent.append((batch.data, base_offset))
        if self.client.random.random() < 0.1:
            self.client.run(lambda: self._send_again(key, *self.client.random.choice(recent)))

    async def _send_again(self, key: TopicPartition, batch: bytes, base_offset: int) -> None:
        producer_id = self._producer_id
        answer = await self._send(key, batch)
        if answer is None or answer.error_code or producer_id != self._producer_id:
            return
        if answer.base_offset not in (-1, base_offset):
            raise Violation(
                10, "appended once", f"{key}: a batch at {base_offset}, sent again, is at {answer.base_offset} too"
            )


class Reader:
    """Follows one partition from the start."""

    def __init__(
        self, cluster: SimCluster, history: History, stop: Stop, name: str, key: TopicPartition, *, is_committed: bool
    ) -> None:
        self.client = SimClient(cluster, name)
        self._history = history
        self._stop = stop
        self.key = key
        self.is_committed = is_committed
        self._is_dense = key[0] not in history.compacted_topics
        self._is_trimmed = key[0] in history.trimmed_topics
        self.offset = 0
        # The values it was given, by offset.
        self.found: dict[int, bytes] = {}
        self.high_watermark = -1
        self.stable_offset = -1
        self.client.run(self._run)

    async def _run(self) -> None:
        pace_s = self.client.random.choice((0.0, 0.0, 0.4))
        while not self._stop.is_set:
            try:
                await self._poll()
                if pace_s:
                    await self.client.pause(pace_s)
            except Unavailable:
                await self.client.pause(0.2)

    async def _poll(self) -> None:
        await self.client.leader_of(self.key)
        answer = await self.client.fetch(
            self.key,
            self.offset,
            isolation_level=int(self.is_committed),
            leader_epoch=self.client.leader_epochs[self.key],
        )
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.offset_out_of_range:
            await self._reset()
            return
        if code:
            self.client.leaders.pop(self.key, None)
            await self.client.pause()
            return
        batches, damage = [], None
        try:
            for one in batches_of(answer.records):
                batches.append(one)
        except Damaged as problem:
            damage = problem
        self._check(answer, [header for header, _ in batches])
        visible = {header for header, _ in visible_batches(answer, batches)} if self.is_committed else None
        for header, batch in batches:
            for record in () if header.is_control else iterate_records(batch, header):
                value = record.value or b""
                self._history.seen(self.client.name, self.key, record.offset, value, header.leader_epoch)
                if record.offset >= self.offset and (visible is None or header in visible):
                    self.found[record.offset] = value
                    if self.is_committed:
                        self._history.seen_committed(self.client.name, value)
            self.offset = max(self.offset, header.last_offset + 1)
        self.high_watermark = answer.high_watermark
        self.stable_offset = answer.last_stable_offset
        if damage is not None:
            if self.key not in self.client.cluster.rotten:
                raise Violation(9, "checksums", f"{self.key} from {self.offset} on: {damage}")
            raise damage

    def _check(self, answer: Any, headers: list[BatchHeader]) -> None:
        limit = answer.last_stable_offset if self.is_committed else answer.high_watermark
        if answer.last_stable_offset > answer.high_watermark:
            raise Violation(20, "last stable offset", f"{self.key}: {answer.last_stable_offset} is past {limit}")
        expected = self.offset
        for header in headers:
            if header.last_offset >= limit:
                raise Violation(4, "high watermark", f"{self.key}: {header.last_offset} was readable, past {limit}")
            if self._is_dense and header.base_offset > expected:
                raise Violation(1, "readable", f"{self.key}: from {expected} on the next batch is {header.base_offset}")
            expected = header.last_offset + 1

    async def _reset(self) -> None:
        if not self._is_trimmed:
            # Whoever reads below the high watermark has a position that every later leader has.
            raise Violation(1, "readable", f"{self.key}: the log ends before {self.offset}, which was readable")
        partition = Struct(partition_index=self.key[1], current_leader_epoch=-1, timestamp=_EARLIEST)
        body = Struct(replica_id=-1, isolation_level=0, topics=[Struct(name=self.key[0], partitions=[partition])])
        answer = await self.client.ask(await self.client.leader_of(self.key), LIST_OFFSETS, body)
        found = answer.topics[0].partitions[0]
        if not found.error_code:
            self.offset = found.offset
