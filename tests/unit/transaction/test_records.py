"""The records of `__transaction_state`: Kafka's bytes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.record_schema import encode_part
from penstock.coordinator.transaction.records import (
    PartitionsSchema,
    Transaction,
    TransactionLogKey,
    TransactionLogValue,
    completed,
    decode_record,
    encode_record,
)
from penstock.coordinator.transaction.states import NAMES, TransactionState
from penstock.protocol.messages import Malformed
from penstock.protocol.records import Record, build_batch
from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import dump_log_segments

partitions = st.frozensets(st.tuples(st.text(max_size=20), st.integers(0, 2**31 - 1)), max_size=5)
int64s, int16s = st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1)
transactions = st.builds(
    Transaction,
    state=st.sampled_from(TransactionState).filter(lambda state: state is not TransactionState.EMPTY),
    producer_id=int64s,
    producer_epoch=int16s,
    timeout_ms=st.integers(0, 2**31 - 1),
    partitions=partitions,
    start_ms=int64s,
    update_ms=int64s,
    previous_producer_id=int64s,
    next_producer_id=int64s,
    next_producer_epoch=int16s,
    transaction_version=st.sampled_from([0, 2]),
    last_producer_epoch=st.just(-1),
)

ONGOING = Transaction(
    state=TransactionState.ONGOING,
    producer_id=4001,
    producer_epoch=7,
    timeout_ms=60_000,
    partitions=frozenset({("orders", 1), ("orders", 0), ("__consumer_offsets", 12)}),
    start_ms=1_700_000_000_000,
    update_ms=1_700_000_000_500,
    previous_producer_id=4000,
    transaction_version=2,
)


@given(st.text(max_size=50), transactions)
def test_what_is_written_is_read(transactional_id: str, transaction: Transaction) -> None:
    record = CoordinatorRecord(transactional_id, transaction)
    assert decode_record(*encode_record(record)) == record


@given(st.text(max_size=50), transactions | transactions.map(lambda one: one._replace(state=TransactionState.EMPTY)))
def test_what_is_written_by_hand_is_what_the_schemas_say(transactional_id: str, transaction: Transaction) -> None:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    by_topic = tuple(PartitionsSchema(topic=topic, partition_ids=tuple(ids)) for topic, ids in topics.items())
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else by_topic,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.transaction_version,
    )
    assert encode_record(CoordinatorRecord(transactional_id, transaction)) == (
        bytes(2) + encode_part(TransactionLogKey(transactional_id=transactional_id), 0),
        bytes([0, 1]) + encode_part(value, 1),
    )


def test_a_tombstone_is_a_key_without_a_value() -> None:
    record = CoordinatorRecord("t", None)
    key, value = encode_record(record)
    assert (key, value) == (b"\x00\x00\x00\x01t", None)
    assert decode_record(key, value) == record


def test_the_first_version_of_values_is_read() -> None:
    value = (
        b"\x00\x00" + (5).to_bytes(8) + (2).to_bytes(2) + (1000).to_bytes(4) + b"\x01"
        b"\x00\x00\x00\x01\x00\x01o\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03"
        + (20).to_bytes(8) + (10).to_bytes(8)
    )  # fmt: skip
    decoded = decode_record(b"\x00\x00\x00\x01t", value)
    assert decoded is not None
    assert decoded.value == Transaction(
        state=TransactionState.ONGOING,
        producer_id=5,
        producer_epoch=2,
        timeout_ms=1000,
        partitions=frozenset({("o", 0), ("o", 3)}),
        start_ms=10,
        update_ms=20,
    )


def test_records_of_other_kinds_are_passed_over_and_damaged_ones_are_not() -> None:
    key, value = encode_record(CoordinatorRecord("t", ONGOING))
    assert value is not None
    assert decode_record(b"\x00\x01" + key[2:], value) is None
    for damaged in (value[:-1], value + b"\x00", b"\x00\x02" + value[2:], b"", b"\x00"):
        with pytest.raises(Malformed):
            decode_record(key, damaged)
    with pytest.raises(Malformed):
        decode_record(b"\x00", value)
    # The state stands after version, id, epoch and timeout.
    with pytest.raises(Malformed):
        decode_record(key, value[:16] + b"\x09" + value[17:])


JARS = kafka_jars()


@pytest.mark.java
@pytest.mark.skipif(JARS is None, reason="Apache Kafka's jars are not here; scripts/kafka-jars fetches them")
def test_kafkas_own_tool_prints_every_state(tmp_path: Path) -> None:
    kept = ONGOING._replace(next_producer_id=4002, next_producer_epoch=3)
    preparing = ONGOING._replace(state=TransactionState.PREPARE_COMMIT)
    states = [
        ONGOING._replace(state=TransactionState.EMPTY, partitions=frozenset(), start_ms=-1),
        ONGOING,
        kept,
        preparing,
        completed(preparing, 1_700_000_001_000),
        ONGOING._replace(state=TransactionState.PREPARE_ABORT),
    ]
    everything = [CoordinatorRecord(f"t-{number}", state) for number, state in enumerate(states)]
    everything.append(CoordinatorRecord("gone", None))
    segment = tmp_path / "__transaction_state-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(build_batch([Record(at, 0, *encode_record(record)) for at, record in enumerate(everything)]))
    printed = dump_log_segments("--transaction-log-decoder", segment)
    lines = [line for line in printed.splitlines() if "payload:" in line]
    assert len(lines) == len(everything), printed
    for number, (state, line) in enumerate(zip(states, lines, strict=False)):
        assert f'"transactionalId":"t-{number}"' in line
        assert f'"transactionStatus":{int(state.state)}' in line, NAMES[state.state]
        assert '"producerEpoch":7' in line
    assert '"transactionPartitions":null' in lines[0]
    assert '"topic":"orders","partitionIds":[0,1]' in lines[1]
    assert '"nextProducerId":4002' in lines[2]
    assert '"nextProducerEpoch":3' in lines[2]
    assert "<DELETE>" in lines[-1]
