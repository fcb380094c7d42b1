"""Topics that do not last: one that is deleted and made again, and one whose beginning is dropped."""

import contextlib
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record, build_batch
from tests.simulation.client import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    PRODUCE,
    Damaged,
    SimClient,
    TopicPartition,
    Unavailable,
    records_of,
)
from tests.simulation.cluster import EPOCH_MS, SimCluster
from tests.simulation.history import History, Trim, Violation
from tests.simulation.workload_produce import Stop

_DELETE_RECORDS = 21
_BY_ID_VERSION = 13
_PATIENCE_SECONDS = 12.0


class Recreator:
    """Owns a topic: makes it, writes, reads back what was acknowledged, deletes it, and makes it again."""

    def __init__(self, cluster: SimCluster, stop: Stop, name: str, topic: str) -> None:
        self.client = SimClient(cluster, name)
        self._stop = stop
        self._topic = topic
        self._generation = 0
        self._topic_id: Any = None
        self._numbers = 0
        # Of this generation, by offset; and what may be there besides.
        self._acknowledged: dict[int, bytes] = {}
        self._sent: set[bytes] = set()
        self.is_done = False
        self.client.run(self._run)

    async def _run(self) -> None:
        chance = self.client.random
        while not self._stop.is_set:
            await self._make()
            for _ in range(chance.randint(1, 8)):
                await self._write()
                await self.client.pause(0.2)
            await self._read_back()
            await self._delete()
        self.is_done = True

    # Life and death

    async def _make(self) -> None:
        """Until it is there. What this generation is called, nobody else knows, so its id is from its own answer, or it
        is deleted and made again."""
        while not self._stop.is_set and self._topic_id is None:
            topic = Struct(name=self._topic, num_partitions=1, replication_factor=3, assignments=[], configs=[])
            body = Struct(topics=[topic], timeout=3000, validate_only=False)
            with contextlib.suppress(Unavailable):
                (made,) = (await self.client.ask_any(CREATE_TOPICS, body)).topics
                if made.error_code == ErrorCode.none:
                    self._topic_id = made.topic_id
                    self._generation += 1
                    self._acknowledged.clear()
                    self._sent.clear()
                    return
                if made.error_code == ErrorCode.topic_already_exists:
                    await self._delete()
            await self.client.pause()

    async def _delete(self) -> None:
        """Until it is gone, by its name."""
        self._topic_id = None
        body = Struct(topics=[Struct(name=self._topic, topic_id=None)], timeout=3000)
        while not self._stop.is_set:
            with contextlib.suppress(Unavailable):
                (deleted,) = (await self.client.ask_any(DELETE_TOPICS, body)).responses
                if deleted.error_code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                    return
            await self.client.pause()

    # Records

    async def _leader(self) -> int:
        self.client.forget_topic(self._topic)
        await self.client.refresh([self._topic])
        return await self.client.leader_of((self._topic, 0))

    async def _write(self) -> None:
        self._numbers += 1
        value = f"{self._generation} {self._numbers}".encode()
        self._sent.add(value)
        batch = build_batch([Record(0, EPOCH_MS + int(self.client.now_s * 1000), None, value)])
        partition = Struct(index=0, records=bytes(batch))
        topic = Struct(topic_id=self._topic_id, partition_data=[partition])
        body = Struct(transactional_id=None, acks=-1, timeout=3000, topic_data=[topic])
        with contextlib.suppress(Unavailable):
            answer = await self.client.ask(await self._leader(), PRODUCE, body, _BY_ID_VERSION)
            (written,) = answer.responses[0].partition_responses
            if not written.error_code:
                self._acknowledged[written.base_offset] = value

    async def _read_back(self) -> None:
        """2: this topic has what was written to it since it was made, nothing of the one that had its name before."""
        give_up_s = self.client.now_s + _PATIENCE_SECONDS
        while self._acknowledged and self.client.now_s < give_up_s and not self._stop.is_set:
            with contextlib.suppress(Unavailable):
                if await self._read_through():
                    return
            await self.client.pause()

    async def _read_through(self) -> bool:
        """From the beginning; whether all that was acknowledged is committed and there. Raises Unavailable.

        As a consumer does, it asks for what an answer leaves out: where a length has rotted, the rest of one seems to
        be a batch that was cut short. That it is damaged shows when it comes first."""
        leader, last = await self._leader(), max(self._acknowledged)
        found: dict[int, bytes] = {}
        while True:
            answer = await self._fetch(leader, max(found, default=-1) + 1)
            if answer.error_code:
                return False
            more = self._records(answer)
            self._check(more)
            found |= more
            if answer.high_watermark <= last:
                return False
            if not more or max(found) >= last:
                self._check_all(found)
                return True

    def _records(self, answer: Any) -> dict[int, bytes]:
        """By offset. Raises Unavailable where a batch is damaged, as it may be if it has rotted."""
        try:
            return {record.offset: record.value or b"" for _, record in records_of(answer.records)}
        except Damaged as problem:
            if (self._topic, 0) not in self.client.cluster.rotten:
                raise Violation(9, "checksums", f"{self._topic}, generation {self._generation}: {problem}") from problem
            raise

    async def _fetch(self, leader: int, offset: int) -> Any:
        partition = Struct(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=200_000,
        )
        body = Struct(
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[Struct(topic_id=self._topic_id, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )
        answer = await self.client.ask(leader, FETCH, body, _BY_ID_VERSION)
        if answer.error_code:
            raise Unavailable(ErrorCode(answer.error_code).name)
        return answer.responses[0].partitions[0]

    def _check(self, found: dict[int, bytes]) -> None:
        for offset, value in found.items():
            if value not in self._sent:
                raise Violation(2, "one topic", f"{value!r} at {offset} of generation {self._generation}")
            if self._acknowledged.get(offset, value) != value:
                raise Violation(2, "one record per offset", f"{offset}: {self._acknowledged[offset]!r}, then {value!r}")

    def _check_all(self, found: dict[int, bytes]) -> None:
        missing = set(self._acknowledged.values()) - set(found.values())
        if missing:
            raise Violation(1, "readable", f"{sorted(missing)} of generation {self._generation} are gone")


class Trimmer:
    """Has the beginning of partitions deleted, up to where readers have read."""

    def __init__(self, cluster: SimCluster, history: History, stop: Stop, name: str, key: TopicPartition) -> None:
        self.client = SimClient(cluster, name)
        self._history = history
        self._stop = stop
        self._key = key
        self.is_done = False
        self.client.run(self._run)

    async def _run(self) -> None:
        while not self._stop.is_set:
            await self.client.pause(4.0)
            with contextlib.suppress(Unavailable):
                await self._trim()
        self.is_done = True

    async def _trim(self) -> None:
        """Raises Unavailable."""
        acknowledged = [
            write.offset
            for write in self._history.writes.values()
            if write.partition == self._key and write.offset is not None
        ]
        if not acknowledged:
            return
        offset = self.client.random.choice(acknowledged)
        self._history.trimmed_to[self._key] = max(self._history.trimmed_to.get(self._key, 0), offset)
        partition = Struct(partition_index=self._key[1], offset=offset)
        body = Struct(topics=[Struct(name=self._key[0], partitions=[partition])], timeout=3000)
        leader = await self.client.leader_of(self._key)
        ends, in_sync = self.client.cluster.ends, self._in_sync(leader)
        answer = await self.client.ask(leader, _DELETE_RECORDS, body, 2)
        (trimmed,) = answer.topics[0].partitions
        code = ErrorCode(trimmed.error_code)
        if code:
            self.client.leaders.pop(self._key, None)
            return
        if trimmed.low_watermark < offset:
            raise Violation(1, "trimmed", f"{self._key} begins at {trimmed.low_watermark} after a cut at {offset}")
        self._history.trims.setdefault(self._key, []).append(
            Trim(offset, leader, in_sync & self._in_sync(leader), ends)
        )

    def _in_sync(self, leader: int) -> frozenset[int]:
        topic, index = self._key
        broker = self.client.cluster.hosts[leader].broker
        partition = None if broker is None else broker.topics_by_name.get(topic.encode(), {}).get(index)
        return frozenset(partition.leader.isr if partition is not None and partition.leader is not None else ())
