"""Requests may fail in any way: every batch is stored once, and in order."""

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.client import producing
from penstock.client.cluster import TopicPartition
from penstock.client.errors import Refusal, TimedOut, Unreachable
from penstock.client.producing import Producer, ProducerId, ProduceSettings, Section
from penstock.protocol.batch import read_header
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record, encode_records

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
SENDS_MAX = 12
# What brokers keep of a producer's last batches.
REMEMBERED = 5


class Broker:
    """Stores as Kafka does: a sequence number that is not the next one is refused, one of the last five is known.

    `mishaps` says for each request that arrives what becomes of it.
    """

    def __init__(self, mishaps: list[str]) -> None:
        self.mishaps = deque(mishaps)
        self.stored: dict[TopicPartition, list[int]] = {each: [] for each in PARTITIONS}

    def take(self, body: Any) -> Struct:
        mishap = self.mishaps.popleft() if self.mishaps else "none"
        if mishap == "lost on the way":
            raise Unreachable("the connection broke")
        answers = []
        for topic in body.topic_data:
            for data in topic.partition_data:
                partition = TopicPartition(topic.name, data.index)
                code = ErrorCode.none
                if mishap == "not the leader" or mishap == f"not the leader of {data.index}":
                    code = ErrorCode.not_leader_or_follower
                elif mishap == "too large":
                    code = ErrorCode.message_too_large
                else:
                    code = self._store(partition, bytes(data.records))
                answers.append(Struct(index=data.index, error_code=code, error_message=None))
        if mishap == "answer lost":
            raise Unreachable("the connection broke")
        return Struct(responses=[Struct(name="t", partition_responses=answers)])

    def _store(self, partition: TopicPartition, batch: bytes) -> ErrorCode:
        sequence = read_header(batch).base_sequence
        stored = self.stored[partition]
        if sequence in stored[-REMEMBERED:]:
            return ErrorCode.duplicate_sequence_number
        if sequence != len(stored) and sequence != -1:
            return ErrorCode.out_of_order_sequence_number
        stored.append(sequence)
        return ErrorCode.none


class Connection:
    """Requests are taken in order when they are sent; a broken connection answers nothing more."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answers: deque[Struct | Unreachable] = deque()

    def version_of(self, api_key: int) -> int:
        return 12

    def send(self, api_key: int, version: int, body: Any) -> None:
        if self._answers and isinstance(self._answers[-1], Unreachable):
            raise Unreachable("the connection is broken")
        try:
            self._answers.append(self._broker.take(body))
        except Unreachable as error:
            self._answers.append(error)

    def receive(self, api_key: int, version: int) -> Struct:
        answer = self._answers.popleft()
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    def close(self) -> None:
        self._answers.clear()


class Cluster:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def leader_of(self, partition: TopicPartition) -> tuple[str, int]:
        return ("leader", partition.partition % 2)

    def forget_leader(self, topic: str) -> None:
        pass

    def connect(self, address: tuple[str, int]) -> Connection:
        return Connection(self._broker)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_BACKOFF_S", 0.0)


def producer_of(broker: Broker, settings_: ProduceSettings | None = None) -> Producer:
    cluster: Any = Cluster(broker)
    return Producer(cluster, settings_, producer_id=ProducerId(7, 0))


def section() -> Section:
    return Section(bytes(encode_records([Record(0, 0, None, b"x")], 0, 0)), 1)


MISHAPS = ["none", "lost on the way", "answer lost", "not the leader", "not the leader of 1"]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(MISHAPS), max_size=30),
    st.lists(st.sets(st.sampled_from(PARTITIONS), min_size=1), min_size=1, max_size=SENDS_MAX),
)
def test_every_batch_is_stored_once_and_in_order(mishaps: list[str], sends: list[set[TopicPartition]]) -> None:
    broker = Broker(mishaps)
    producer = producer_of(broker)
    for partitions in sends:
        producer.send({partition: section() for partition in partitions})
    producer.flush()
    for partition in PARTITIONS:
        assert broker.stored[partition] == list(range(sum(partition in each for each in sends)))


def test_what_the_broker_will_never_take_is_raised() -> None:
    producer = producer_of(Broker(["none", "too large"]))
    for _ in range(2):
        producer.send({PARTITIONS[0]: section()})
    with pytest.raises(Refusal) as raised:
        producer.flush()
    assert raised.value.code == ErrorCode.message_too_large


def test_a_broker_that_never_takes_a_batch_is_given_up() -> None:
    producer = producer_of(Broker(["not the leader"] * 10_000), ProduceSettings(delivery_timeout_ms=20))
    producer.send({PARTITIONS[0]: section()})
    with pytest.raises(TimedOut, match="1 batches were not taken"):
        producer.flush()
