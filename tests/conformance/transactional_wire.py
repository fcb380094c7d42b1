"""A transactional producer that says exactly what it is told to, right or wrong."""

import time
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.protocol.batch import HEADER_BYTES, TRANSACTIONAL, read_header
from penstock.protocol.messages import Struct
from tests.conformance.wire import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    Wire,
    batch_of,
    fetch_of,
    records_of,
)

# Answers that say: ask again.
_SOON = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
    # As which Produce hides the others.
    ErrorCode.not_enough_replicas,
    # Kafka's, of a topic that was made this moment.
    ErrorCode.not_leader_or_follower,
)
_SECONDS_MAX = 60
READ_COMMITTED = 1


class TransactionalProducer:
    """Of transaction version 2 or, with `is_old`, of the version before."""

    def __init__(self, wire: Wire, name: str, *, is_old: bool = False) -> None:
        self.wire = wire
        self.name = name
        self.is_old = is_old
        self.sequence = 0
        self.producer_id = self.epoch = -1
        self._settled(lambda: self._find(1))
        self._settled(lambda: self._find(0))
        self.init()

    def _find(self, key_type: int) -> Any:
        answer = self.wire.ask(FIND_COORDINATOR, 4, Struct(key_type=key_type, coordinator_keys=[self.name]))
        return answer.coordinators[0].error_code

    def _settled(self, ask: Any) -> ErrorCode:
        """The first answer that is not about waiting."""
        deadline_s = time.monotonic() + _SECONDS_MAX
        while (error := ask()) in _SOON and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return ErrorCode(error)

    def init(self, **fields: Any) -> ErrorCode:
        def ask() -> Any:
            body = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1} | fields
            answer = self.wire.ask(INIT_PRODUCER_ID, 5, Struct(transactional_id=self.name, **body))
            if not answer.error_code:
                self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
            return answer.error_code

        return self._settled(ask)

    def add(self, topic: str, partition: int = 0) -> ErrorCode:
        def ask() -> Any:
            body = Struct(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[Struct(name=topic, partitions=[partition])],
            )
            answer = self.wire.ask(ADD_PARTITIONS_TO_TXN, 3, body)
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        return self._settled(ask)

    def write(self, topic: str, value: bytes, **options: Any) -> ErrorCode:
        """Options: name (None for no transactional id), attributes, version, sequence, producer_id, epoch."""
        version = options.get("version", 10 if self.is_old else 12)
        producer = (
            options.get("producer_id", self.producer_id),
            options.get("epoch", self.epoch),
            options.get("sequence", self.sequence),
        )
        # Of today, as markers are: else these would begin a segment of their own.
        now_ms = time.time_ns() // 1_000_000
        attributes = options.get("attributes", TRANSACTIONAL)
        batch = batch_of([value], timestamp_ms=now_ms, attributes=attributes, producer=producer)
        body = Struct(
            transactional_id=options.get("name", self.name),
            acks=-1,
            timeout=30_000,
            topic_data=[Struct(name=topic, partition_data=[Struct(index=0, records=batch)])],
        )

        def ask() -> Any:
            return self.wire.ask(PRODUCE, version, body).responses[0].partition_responses[0].error_code

        error = self._settled(ask)
        if not error:
            self.sequence += 1
        return error

    def end(self, *, commit: bool = True, **fields: Any) -> ErrorCode:
        def ask() -> Any:
            body = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "committed": commit} | fields
            answer = self.wire.ask(END_TXN, 3 if self.is_old else 5, Struct(transactional_id=self.name, **body))
            if not answer.error_code and not self.is_old:
                self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
            return answer.error_code

        return self._settled(ask)

    def add_offsets(self, group: str) -> ErrorCode:
        def ask() -> Any:
            body = Struct(
                transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
            )
            return self.wire.ask(ADD_OFFSETS_TO_TXN, 3, body).error_code

        return self._settled(ask)

    def commit_offset(self, group: str, topic: str, offset: int, **fields: Any) -> ErrorCode:
        def ask() -> Any:
            body = {
                "transactional_id": self.name,
                "group_id": group,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "generation_id": -1,
                "member_id": "",
                "topics": [Struct(name=topic, partitions=[Struct(partition_index=0, committed_offset=offset)])],
            } | fields
            answer = self.wire.ask(TXN_OFFSET_COMMIT, 3 if self.is_old else 5, Struct(**body))
            return answer.topics[0].partitions[0].error_code

        return self._settled(ask)

    def mark(
        self, topic: str, epoch: int, *, commit: bool = False, coordinator: int = 0, version: int = 0
    ) -> ErrorCode:
        marker = Struct(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[Struct(name=topic, partition_indexes=[0])],
            coordinator_epoch=coordinator,
            transaction_version=version,
        )
        answer = self.wire.ask(WRITE_TXN_MARKERS, 2, Struct(markers=[marker]))
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def committed_values(wire: Wire, topic: str) -> tuple[list[bytes | None], int, int]:
    """(what readers of committed records see, last stable offset, high watermark). Reads as Kafka's consumers do."""
    answer = wire.ask(FETCH, 12, fetch_of(topic, [(0, 0)], isolation_level=READ_COMMITTED)).responses[0].partitions[0]
    aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
    data, values = bytes(answer.records or b""), []
    skipped: set[int] = set()
    while len(data) >= HEADER_BYTES:
        header = read_header(data)
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped:
            values += [record.value for record in records_of(data[: header.size])]
        data = data[header.size :]
    return values, answer.last_stable_offset, answer.high_watermark


def committed_offset(wire: Wire, group: str, topic: str, *, require_stable: bool = False) -> tuple[int, ErrorCode]:
    asked = Struct(group_id=group, topics=[Struct(name=topic, partition_indexes=[0])], member_epoch=-1)
    answer = wire.ask(OFFSET_FETCH, 9, Struct(groups=[asked], require_stable=require_stable))
    found = answer.groups[0].topics[0].partitions[0]
    return found.committed_offset, ErrorCode(found.error_code)
