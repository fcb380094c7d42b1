"""Batches to their leaders. One request is under way to each leader while the next one is being made.

Idempotent unless told otherwise: every batch has its sequence number, so that one which is sent again after a broken
connection or a leader change is stored once, and in order.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.connection import INIT_PRODUCER_ID, PRODUCE, Address, Connection, code_of
from penstock.client.errors import ClientError, Refusal, TimedOut, is_worth_retrying
from penstock.protocol.batch import TRANSACTIONAL, encode_batch
from penstock.protocol.compression import CODEC_NAMES, compress
from penstock.protocol.messages import Struct

ACKS_ALL = -1
_BACKOFF_S = 0.05
_BACKOFF_S_MAX = 1.0
_SEQUENCE_MASK = 0x7FFFFFFF


class ProducerId(NamedTuple):
    id: int
    epoch: int


NO_PRODUCER_ID = ProducerId(-1, -1)


class ProduceSettings(NamedTuple):
    """Kafka's names: acks, compression.type, delivery.timeout.ms, request.timeout.ms, enable.idempotence."""

    acks: int = ACKS_ALL
    compression: str = "none"
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    is_idempotent: bool = True


class Section(NamedTuple):
    """Records of one batch, as `record_encoding` makes them, all of one time."""

    records: bytes
    record_count: int


def idempotent_producer_id(cluster: Cluster) -> ProducerId:
    def attempt() -> ProducerId:
        answer = cluster.ask_any(INIT_PRODUCER_ID, Struct(transactional_id=None, transaction_timeout=60_000))
        code = code_of(answer.error_code)
        if code != ErrorCode.none:
            raise Refusal(code, "a producer id")
        return ProducerId(int(answer.producer_id), int(answer.producer_epoch))

    return cluster.patiently(attempt, "asking for a producer id")


class Producer:
    """Not for several threads at once. `transactional_id` marks the batches; beginning and ending is the caller's."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProduceSettings | None = None,
        *,
        producer_id: ProducerId | None = None,
        transactional_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings or ProduceSettings()
        self._codec = CODEC_NAMES.index(self._settings.compression)
        self._transactional_id = transactional_id
        if producer_id is None:
            producer_id = idempotent_producer_id(cluster) if self._settings.is_idempotent else NO_PRODUCER_ID
        self._producer_id = producer_id
        self._sequences: dict[TopicPartition, int] = {}
        self._connections: dict[Address, Connection] = {}
        # What is under way, by leader.
        self._sent: dict[Address, dict[TopicPartition, bytearray]] = {}
        self._unsent: dict[TopicPartition, bytearray] = {}
        self._failure: ClientError | None = None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def send(self, sections: Mapping[TopicPartition, Section]) -> None:
        """Makes the batches while those before are under way, waits for these, and sends. Raises what `flush` does."""
        batches = {partition: self._batch(partition, section) for partition, section in sections.items()}
        self.flush()
        self._dispatch(batches)

    def _batch(self, partition: TopicPartition, section: Section) -> bytearray:
        now_ms = time.time_ns() // 1_000_000
        sequence = -1
        if self._producer_id != NO_PRODUCER_ID:
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = (sequence + section.record_count) & _SEQUENCE_MASK
        return encode_batch(
            compress(self._codec, section.records),
            record_count=section.record_count,
            attributes=self._codec | (TRANSACTIONAL if self._transactional_id is not None else 0),
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=self._producer_id.id,
            producer_epoch=self._producer_id.epoch,
            base_sequence=sequence,
        )

    def flush(self) -> None:
        """Returns when everything that was sent is stored. Raises Refusal for what the broker will never take, TimedOut
        when it was tried for as long as is allowed."""
        deadline_s = time.monotonic() + self._settings.delivery_timeout_ms / 1000
        backoff_s = _BACKOFF_S
        while True:
            self._collect()
            if not self._unsent:
                return
            assert self._failure is not None
            if not is_worth_retrying(self._failure):
                raise self._failure
            if time.monotonic() > deadline_s:
                waited = f"{len(self._unsent)} batches were not taken within {self._settings.delivery_timeout_ms} ms"
                raise TimedOut(f"{waited}; the last failure: {self._failure}") from self._failure
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
            again, self._unsent = self._unsent, {}
            for partition in again:
                self._cluster.forget_leader(partition.topic)
            self._dispatch(again)

    def _dispatch(self, batches: Mapping[TopicPartition, bytearray]) -> None:
        groups: dict[Address, dict[TopicPartition, bytearray]] = {}
        for partition, batch in batches.items():
            try:
                groups.setdefault(self._cluster.leader_of(partition), {})[partition] = batch
            except ClientError as error:
                self._fail({partition: batch}, error)
        for address, group in groups.items():
            try:
                connection = self._connections.get(address)
                if connection is None:
                    connection = self._connections[address] = self._cluster.connect(address)
                connection.send(PRODUCE, connection.version_of(PRODUCE), self._request(group))
            except ClientError as error:
                self._drop(address)
                self._fail(group, error)
            else:
                if self._settings.acks:
                    self._sent[address] = group

    def _request(self, group: Mapping[TopicPartition, bytearray]) -> Struct:
        topics: dict[str, list[Struct]] = {}
        for (topic, index), batch in group.items():
            topics.setdefault(topic, []).append(Struct(index=index, records=batch))
        return Struct(
            transactional_id=self._transactional_id,
            acks=self._settings.acks,
            timeout=self._settings.request_timeout_ms,
            topic_data=[Struct(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _collect(self) -> None:
        """The answers to what is under way; what was not stored is in `_unsent` afterwards."""
        sent, self._sent = self._sent, {}
        for address, group in sent.items():
            connection = self._connections[address]
            try:
                answer = connection.receive(PRODUCE, connection.version_of(PRODUCE))
            except ClientError as error:
                self._drop(address)
                self._fail(group, error)
                continue
            for topic in answer.responses:
                for stored in topic.partition_responses:
                    partition = TopicPartition(str(topic.name), int(stored.index))
                    code = code_of(stored.error_code)
                    # A duplicate is what came of an earlier try.
                    if code not in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                        refusal = Refusal(code, f"writing to {partition}", stored.error_message)
                        self._fail({partition: group[partition]}, refusal)

    def _fail(self, batches: Mapping[TopicPartition, bytearray], error: ClientError) -> None:
        self._unsent.update(batches)
        # What will not heal must not be hidden by what may.
        if self._failure is None or is_worth_retrying(self._failure):
            self._failure = error

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
