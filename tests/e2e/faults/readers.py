"""Clients that read: members of groups, who commit, and readers on their own, who follow or read everything."""

import random
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.e2e.faults.history import Recorder
from tests.e2e.faults.workload import PATIENCE_SECONDS, SESSION_TIMEOUT_MS, SETTINGS, Client, refuse_reset, value_of

_COMMIT_SECONDS = 0.5
_TURN_RECORDS_MAX = 300


class GroupMember(Client):
    """Of a group, by the old protocol ("classic") or the new one ("consumer"). Commits what it has seen."""

    def __init__(self, name: str, bootstrap: str, recorder: Recorder, topic: str, group: str, protocol: str) -> None:
        super().__init__(name, bootstrap, recorder)
        self._topic, self._group, self._protocol = topic, group, protocol
        self._life = ""
        self._seen: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._positions: dict[int, int] = {}

    def live(self, life: str) -> None:
        self._life = life
        self._positions.clear()
        self._seen.clear()
        sessions = {"session.timeout.ms": SESSION_TIMEOUT_MS} if self._protocol == "classic" else {}
        consumer = Consumer(
            {
                **SETTINGS,
                **sessions,
                "bootstrap.servers": self.bootstrap,
                "group.id": self._group,
                "group.protocol": self._protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
            committed_s = polled_s = time.monotonic()
            while not self.ended.is_set() and time.monotonic() - polled_s < PATIENCE_SECONDS:
                if self._turn(consumer):
                    polled_s = time.monotonic()
                if time.monotonic() - committed_s > _COMMIT_SECONDS:
                    self._commit(consumer)
                    committed_s = time.monotonic()
        finally:
            consumer.close()

    def _turn(self, consumer: Consumer) -> bool:
        """Whether there was anything to see."""
        message: Any = consumer.poll(0.2)
        is_something = message is not None
        count = 0
        while message is not None:
            error: KafkaError | None = message.error()
            if error is None:
                self._seen[message.partition()].append((message.offset(), value_of(message)))
            elif error.fatal():
                raise KafkaException(error)
            else:
                refuse_reset(error)
            count += 1
            message = consumer.poll(0) if count < _TURN_RECORDS_MAX else None
        self._note()
        return is_something

    def _note(self) -> None:
        for partition, pairs in self._seen.items():
            if pairs:
                offsets, values = zip(*pairs, strict=True)
                self.recorder.write("poll", r=self._life, tp=f"{self._topic}-{partition}", o=offsets, v=values)
                self._positions[partition] = offsets[-1] + 1
        self._seen.clear()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note()
        found = self.committed(consumer, partitions, self._group)
        for one in found:
            tp = f"{one.topic}-{one.partition}"
            self.recorder.write("start", r=self._life, iso="read_committed", tp=tp, o=one.offset, g=self._group)
        if self._protocol == "consumer":
            consumer.incremental_assign(found)
        else:
            consumer.assign(found)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note()
        for one in partitions:
            self._positions.pop(one.partition, None)

    def _commit(self, consumer: Consumer) -> None:
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self._positions.items()]
        if not offsets:
            return
        try:
            done: Any = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            if problem.args[0].fatal():
                raise
            return
        for one in done:
            if one.error is None:
                self.recorder.write("commit", g=self._group, tp=f"{one.topic}-{one.partition}", o=one.offset)
                if self._positions.get(one.partition) == one.offset:
                    del self._positions[one.partition]


class Follower(Client):
    """Reads all partitions as they grow; now and then it begins anew, some way back."""

    def __init__(
        self, name: str, bootstrap: str, recorder: Recorder, topics: dict[str, int], isolation: str, life_s: float
    ) -> None:
        super().__init__(name, bootstrap, recorder)
        self._topics, self._isolation, self._life_s = topics, isolation, life_s
        self._chance = random.Random(name)
        self._positions: dict[tuple[str, int], int] = {}

    def live(self, life: str) -> None:
        consumer = _reader(self.bootstrap, self._isolation)
        try:
            starts = []
            for topic, count in self._topics.items():
                for partition in range(count):
                    known = self._positions.get((topic, partition), 0)
                    starts.append(TopicPartition(topic, partition, max(0, known - self._chance.randint(0, 2000))))
            for one in starts:
                self.recorder.write(
                    "start", r=life, iso=self._isolation, tp=f"{one.topic}-{one.partition}", o=one.offset
                )
            consumer.assign(starts)
            until_s = time.monotonic() + self._chance.uniform(0.5, 1.5) * self._life_s
            while not self.ended.is_set() and time.monotonic() < until_s:
                for (topic, partition), pairs in _taken(consumer, {}).items():
                    offsets, values = zip(*pairs, strict=True)
                    self.recorder.write("poll", r=life, tp=f"{topic}-{partition}", o=offsets, v=values)
                    self._positions[topic, partition] = offsets[-1] + 1
        finally:
            consumer.close()


def read_to_the_end(
    bootstrap: str, recorder: Recorder, topics: dict[str, int], isolation: str, ends: dict[str, int], seconds_max: float
) -> None:
    """Everything, with a client of its own. `ends` says where that is."""
    reader = f"final-{isolation}"
    consumer = _reader(bootstrap, isolation)
    ends_seen: dict[str, int] = {}
    parts = [TopicPartition(topic, partition, 0) for topic, count in topics.items() for partition in range(count)]
    for one in parts:
        recorder.write("start", r=reader, iso=isolation, tp=f"{one.topic}-{one.partition}", o=0)
    try:
        consumer.assign(parts)
        deadline_s = time.monotonic() + seconds_max
        left = {f"{one.topic}-{one.partition}" for one in parts}
        while left and time.monotonic() < deadline_s:
            for (topic, partition), pairs in _taken(consumer, ends_seen).items():
                offsets, values = zip(*pairs, strict=True)
                recorder.write("poll", r=reader, tp=f"{topic}-{partition}", o=offsets, v=values)
            for tp in [tp for tp in left if ends_seen.get(tp, -1) >= ends[tp]]:
                left.discard(tp)
                recorder.write("whole", r=reader, tp=tp)
    finally:
        consumer.close()


def _reader(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            **SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
        }
    )


def _taken(consumer: Consumer, ends_seen: dict[str, int]) -> dict[tuple[str, int], list[tuple[int, str]]]:
    """Notes the ends of partitions too, which may lie behind markers."""
    found: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    message: Any
    for message in consumer.consume(1000, 0.2):
        error = message.error()
        if error is None:
            found[message.topic(), message.partition()].append((message.offset(), value_of(message)))
        elif error.code() == KafkaError._PARTITION_EOF:
            ends_seen[f"{message.topic()}-{message.partition()}"] = message.offset()
        else:
            refuse_reset(error)
    return found
