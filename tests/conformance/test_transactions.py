"""What transactional producers may do and how they are refused, at our broker and, where it is there, at Kafka."""

from collections.abc import Iterator

import pytest

from penstock.base.errors import ErrorCode
from penstock.protocol.batch import CONTROL, TRANSACTIONAL
from tests.conformance.transactional_wire import TransactionalProducer, committed_offset, committed_values
from tests.conformance.wire import FETCH, FETCH_BY_NAME, Wire, create_topic, decode_answer, fetch_of, records_of

NONE = ErrorCode.none
VERSIONS = pytest.mark.parametrize("is_old", [True, False], ids=["version-1", "version-2"])


@pytest.fixture(params=["shared_broker", pytest.param("apache_kafka", marks=pytest.mark.java)])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with Wire(request.getfixturevalue(request.param).port) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire, topic_name: str) -> str:
    create_topic(wire, topic_name)
    return topic_name


def begin(wire: Wire, topic: str, is_old: bool = False) -> TransactionalProducer:
    producer = TransactionalProducer(wire, topic, is_old=is_old)
    if is_old:
        assert producer.add(topic) == NONE
    return producer


@VERSIONS
def test_a_committed_transaction_is_seen_and_an_aborted_one_is_not(wire: Wire, topic: str, is_old: bool) -> None:
    producer = begin(wire, topic, is_old)
    assert producer.write(topic, b"kept") == NONE
    assert committed_values(wire, topic) == ([], 0, 1)
    assert producer.end() == NONE
    if is_old:
        assert producer.add(topic) == NONE
    assert producer.write(topic, b"dropped") == NONE
    assert producer.end(commit=False) == NONE
    if is_old:
        assert producer.add(topic) == NONE
    assert producer.write(topic, b"kept too") == NONE
    assert producer.end() == NONE
    # The last marker may still be on its way.
    while committed_values(wire, topic)[1:] != (6, 6):
        pass
    assert committed_values(wire, topic)[0] == [b"kept", b"kept too"]


@VERSIONS
def test_offsets_are_seen_when_their_transaction_is_committed(wire: Wire, topic: str, is_old: bool) -> None:
    producer = TransactionalProducer(wire, topic, is_old=is_old)
    if is_old:
        assert producer.add_offsets(topic) == NONE
    assert producer.commit_offset(topic, topic, 7) == NONE
    assert committed_offset(wire, topic, topic) == (-1, NONE)
    assert committed_offset(wire, topic, topic, require_stable=True) == (-1, ErrorCode.unstable_offset_commit)
    assert producer.end() == NONE
    while committed_offset(wire, topic, topic, require_stable=True)[1]:
        pass
    assert committed_offset(wire, topic, topic, require_stable=True) == (7, NONE)
    if is_old:
        assert producer.add_offsets(topic) == NONE
    assert producer.commit_offset(topic, topic, 9) == NONE
    assert producer.end(commit=False) == NONE
    while committed_offset(wire, topic, topic, require_stable=True)[1]:
        pass
    assert committed_offset(wire, topic, topic) == (7, NONE)


def test_an_old_client_that_did_not_add_the_partition_is_refused(wire: Wire, topic: str) -> None:
    producer = TransactionalProducer(wire, topic, is_old=True)
    assert producer.write(topic, b"v") == ErrorCode.invalid_txn_state
    assert producer.write(topic, b"v", version=11) == ErrorCode.transaction_abortable
    assert producer.commit_offset(topic, topic, 1) == ErrorCode.invalid_txn_state


@VERSIONS
def test_a_newer_instance_fences_the_older_one(wire: Wire, topic: str, is_old: bool) -> None:
    older = begin(wire, topic, is_old)
    assert older.write(topic, b"dropped") == NONE
    newer = TransactionalProducer(wire, topic, is_old=is_old)
    assert older.write(topic, b"late") == ErrorCode.invalid_producer_epoch
    assert older.commit_offset(topic, topic, 1) in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
    assert older.end() in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
    if is_old:
        assert newer.add(topic) == NONE
    assert newer.write(topic, b"kept") == NONE


@VERSIONS
def test_what_is_wrong_with_a_batch_is_told_by_its_code(wire: Wire, topic: str, is_old: bool) -> None:
    producer = begin(wire, topic, is_old)
    refused = producer.write(topic, b"v", name=None)
    assert refused == ErrorCode.transactional_id_authorization_failed
    assert producer.write(topic, b"v", attributes=TRANSACTIONAL | CONTROL) == ErrorCode.invalid_record
    assert producer.write(topic, b"v", producer_id=producer.producer_id + 77_000) == (
        ErrorCode.invalid_producer_id_mapping
    )
    assert producer.write(topic, b"first") == NONE
    assert producer.write(topic, b"gap", sequence=5) == ErrorCode.out_of_order_sequence_number
    assert producer.write(topic, b"plain", attributes=0) == ErrorCode.invalid_txn_state


def test_in_version_2_a_transaction_begins_with_sequence_zero(wire: Wire, topic: str) -> None:
    producer = TransactionalProducer(wire, topic)
    assert producer.write(topic, b"v", sequence=3) == ErrorCode.out_of_order_sequence_number
    assert producer.write(topic, b"v", sequence=0) == NONE


def test_markers_are_fenced_by_epoch_and_by_coordinator(wire: Wire, topic: str) -> None:
    producer = begin(wire, topic, is_old=True)
    assert producer.write(topic, b"v") == NONE
    epoch = producer.epoch
    assert producer.mark(topic, epoch, version=2) == ErrorCode.invalid_producer_epoch
    assert producer.mark(topic, epoch + 1, version=2, coordinator=5) == NONE
    assert producer.mark(topic, epoch + 1, version=2, coordinator=5) == NONE
    assert producer.mark(topic, epoch, coordinator=5) == ErrorCode.invalid_producer_epoch
    assert producer.mark(topic, epoch + 2, coordinator=4) == ErrorCode.transaction_coordinator_fenced
    assert producer.mark(f"{topic}-missing", epoch) == ErrorCode.unknown_topic_or_partition
    assert producer.write(topic, b"late") == ErrorCode.invalid_producer_epoch


def test_offsets_of_a_transaction_are_fenced_by_the_group(wire: Wire, topic: str) -> None:
    producer = TransactionalProducer(wire, topic)
    assert producer.commit_offset(topic, topic, 1, generation_id=3, member_id="m") == ErrorCode.illegal_generation
    assert producer.commit_offset("", topic, 1) == ErrorCode.invalid_group_id
    assert producer.commit_offset(topic, f"{topic}-missing", 1) == ErrorCode.unknown_topic_or_partition


def test_a_waiting_reader_of_committed_records_is_woken_by_the_commit_and_not_by_the_write(
    wire: Wire, topic: str
) -> None:
    producer = TransactionalProducer(wire, topic)
    assert producer.write(topic, b"first") == NONE
    with Wire(wire.socket.getpeername()[1]) as reader:
        waiting = fetch_of(topic, [(0, 0)], isolation_level=1, min_bytes=1, max_wait_ms=20_000)
        reader.send(FETCH, FETCH_BY_NAME, waiting)
        assert producer.write(topic, b"second") == NONE
        reader.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            reader.receive()
        reader.socket.settimeout(10)
        assert producer.end() == NONE
        answer = decode_answer(FETCH, FETCH_BY_NAME, reader.receive()).responses[0].partitions[0]
    assert answer.last_stable_offset == 3
    assert [record.value for record in records_of(answer.records)][:2] == [b"first", b"second"]
