"""What a partition takes from producers, and with which error it refuses the rest. Codes as Apache Kafka gives them."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.partition.partition import LONG_AGO_MS, Partition
from penstock.cluster.partition.replication import Leader
from penstock.log.config import LogConfig
from penstock.protocol.batch import (
    CONTROL,
    HEADER,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    crc_is_valid,
    encode_batch,
    read_header,
)
from penstock.protocol.produce import PartitionAnswer
from penstock.protocol.records import Record, build_batch, iterate_records
from penstock.testing.sim_disk import SimDisk
from tests.unit.partition.made import NOW_MS, make_partition

VERSION = 12


def make(disk: SimDisk | None = None, *, replicas: tuple[int, ...] = (1,), **config: Any) -> Partition:
    return make_partition(disk or SimDisk(), LogConfig(**config), replicas=replicas)


def batch(count: int = 2, *, key: bytes | None = b"k", timestamp: int = NOW_MS, **fields: Any) -> bytearray:
    return build_batch([Record(i, timestamp, key, b"v%d" % i) for i in range(count)], **fields)


def produce(
    partition: Partition, data: bytearray | None, *, acks: int = 1, version: int = VERSION, now_ms: int = NOW_MS
) -> PartitionAnswer:
    return partition.append(None if data is None else memoryview(data), acks, version, now_ms)


def stored(partition: Partition, offset: int = 0) -> bytes:
    found = partition.log.read(offset, 1 << 20, partition.log.log_end_offset)
    assert found is not None
    return found.file.read(found.position, found.length)


def rewritten(data: bytearray, **changes: int) -> bytearray:
    """The batch with some header fields changed and its CRC right again."""
    header = read_header(data)._replace(**changes)
    records = bytes(data[61:])
    again = encode_batch(
        records,
        record_count=header.record_count,
        base_offset=header.base_offset,
        attributes=header.attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    HEADER.pack_into(again, 0, *header._replace(crc=read_header(again).crc))
    return again


def test_batches_are_stored_as_they_are_but_for_their_place() -> None:
    partition = make()
    assert produce(partition, batch(2)) == PartitionAnswer(0, 0, 0, -1, 0)
    sent = batch(3)
    original = bytes(sent)
    assert produce(partition, sent).base_offset == 2
    kept = stored(partition, 2)
    header = read_header(kept)
    assert (header.base_offset, header.leader_epoch) == (2, 3)
    assert kept[16:] == original[16:]
    assert crc_is_valid(kept, header)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.invalid_record),
        (bytearray(), ErrorCode.invalid_record),
        (batch()[:60], ErrorCode.invalid_record),
        (batch()[:-1], ErrorCode.invalid_record),
        (batch() + batch(), ErrorCode.invalid_record),
        (rewritten(batch(), magic=1), ErrorCode.invalid_record),
        (rewritten(batch(), magic=3), ErrorCode.corrupt_message),
        (rewritten(batch(), magic=-1), ErrorCode.corrupt_message),
        (rewritten(batch(), batch_length=10), ErrorCode.corrupt_message),
        (rewritten(batch(), batch_length=-1), ErrorCode.corrupt_message),
        (rewritten(batch(), batch_length=2**31 - 1), ErrorCode.invalid_record),
        (rewritten(batch(), attributes=5), ErrorCode.invalid_record),
        (rewritten(batch(), attributes=7), ErrorCode.invalid_record),
        (rewritten(batch(), attributes=CONTROL), ErrorCode.invalid_record),
        (rewritten(batch(), base_offset=1), ErrorCode.invalid_record),
        (rewritten(batch(), record_count=0), ErrorCode.invalid_record),
        (rewritten(batch(), record_count=-1), ErrorCode.invalid_record),
        (rewritten(batch(), record_count=3), ErrorCode.invalid_record),
        (rewritten(batch(), last_offset_delta=-1), ErrorCode.invalid_record),
        (rewritten(batch(), producer_id=5), ErrorCode.invalid_producer_epoch),
        (rewritten(batch(), producer_id=5, producer_epoch=0), ErrorCode.invalid_record),
        (batch(timestamp=NOW_MS + 3_600_001), ErrorCode.invalid_timestamp),
        (batch(timestamp=2**62), ErrorCode.invalid_timestamp),
    ],
)
def test_a_batch_that_is_not_one_gets_its_error_and_leaves_no_trace(data: bytearray | None, code: ErrorCode) -> None:
    partition = make()
    answer = produce(partition, data)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert partition.log.log_end_offset == 0


def test_a_flipped_bit_anywhere_under_the_crc_is_corrupt() -> None:
    partition = make()
    whole = batch()
    for position in range(21, len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1
        assert produce(partition, broken).error_code, position
    assert partition.log.log_end_offset == 0


def test_a_batch_over_the_limit_is_too_large_and_one_at_the_limit_is_not() -> None:
    limit = len(batch(5))
    assert not produce(make(max_message_bytes=limit), batch(5)).error_code
    assert produce(make(max_message_bytes=limit - 1), batch(5)).error_code == ErrorCode.message_too_large


def test_zstd_needs_a_client_that_may_speak_it() -> None:
    assert produce(make(), batch(codec=4), version=6).error_code == ErrorCode.unsupported_compression_type
    assert not produce(make(), batch(codec=4), version=7).error_code


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    records = [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, None, b"v"), Record(2, NOW_MS, None, b"v")]
    for codec in range(5):
        answer = produce(make(cleanup_policy=("compact",)), build_batch(records, codec=codec))
        assert answer.error_code == ErrorCode.invalid_record
        assert [error.batch_index for error in answer.record_errors] == [1, 2]


def test_a_bound_below_looks_at_every_record() -> None:
    records = [Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS - 5000, None, b"v")]
    answer = produce(make(timestamp_before_max_ms=1000), build_batch(records))
    assert answer.error_code == ErrorCode.invalid_timestamp
    assert [error.batch_index for error in answer.record_errors] == [1]


def test_log_append_time_stamps_the_batch() -> None:
    partition = make(timestamp_type="LogAppendTime")
    answer = produce(partition, batch(timestamp=5))
    assert answer.append_time_ms == NOW_MS
    kept = stored(partition)
    header = read_header(kept)
    assert crc_is_valid(kept, header)
    assert {record.timestamp for record in iterate_records(kept, header)} == {NOW_MS}


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", range(5))
def test_the_topics_codec_is_honoured_and_the_records_stay(wanted: str, sent: int) -> None:
    partition = make(compression_type=wanted)
    data = batch(50, codec=sent)
    expected = list(iterate_records(bytes(data), read_header(data)))
    assert not produce(partition, data).error_code
    kept = stored(partition)
    header = read_header(kept)
    assert header.codec == ("uncompressed", "gzip", "snappy", "lz4", "zstd").index(wanted)
    assert crc_is_valid(kept, header)
    assert list(iterate_records(kept, header)) == expected


def test_garbage_behind_a_codec_is_corrupt_when_it_must_be_opened() -> None:
    garbage = encode_batch(b"garbage", record_count=1, attributes=1, base_timestamp=NOW_MS, max_timestamp=NOW_MS)
    assert produce(make(compression_type="lz4"), garbage).error_code == ErrorCode.corrupt_message


def idempotent(sequence: int, count: int = 2, *, epoch: int = 0, producer_id: int = 9) -> bytearray:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_retry_is_answered_with_the_original_offset_within_a_window_of_five() -> None:
    partition = make()
    for number in range(6):
        assert produce(partition, idempotent(2 * number)).base_offset == 2 * number
    for number in range(1, 6):
        assert produce(partition, idempotent(2 * number)).base_offset == 2 * number
    assert partition.log.log_end_offset == 12
    assert produce(partition, idempotent(0)).error_code in (
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
    )


def test_a_gap_in_the_sequence_is_out_of_order() -> None:
    partition = make()
    produce(partition, idempotent(0))
    assert produce(partition, idempotent(4)).error_code == ErrorCode.out_of_order_sequence_number
    assert produce(partition, idempotent(2)).base_offset == 2


def lead(partition: Partition, leader_epoch: int, now_ms: int) -> None:
    partition.lead(Leader(1, {}, lag_ms_max=1000, isr_min=1), leader_epoch, lambda _: None, now_ms)


def test_a_gap_not_long_after_a_change_of_leaders_is_to_be_sent_again_in_order() -> None:
    """For as long as the producer may wait for an answer of the leader before."""
    partition = make(replicas=(1, 2))
    produce(partition, idempotent(0))
    lead(partition, partition.leader_epoch + 1, NOW_MS)
    assert produce(partition, idempotent(4), now_ms=NOW_MS + 29_999).error_code == ErrorCode.not_leader_or_follower
    assert produce(partition, idempotent(2), now_ms=NOW_MS + 29_999).base_offset == 2
    # Other news of the partition do not make the leader new again.
    lead(partition, partition.leader_epoch, NOW_MS + 30_000)
    for now_ms in (NOW_MS + 30_000, NOW_MS - 1):
        assert produce(partition, idempotent(6), now_ms=now_ms).error_code == ErrorCode.out_of_order_sequence_number


def test_what_was_written_long_before_is_not_waited_for_by_a_new_leader() -> None:
    partition = make(replicas=(1, 2))
    for number in range(7):
        produce(partition, idempotent(2 * number))
    lead(partition, partition.leader_epoch + 1, NOW_MS)
    too_old = produce(partition, idempotent(0), now_ms=NOW_MS + 2000)
    assert too_old.error_code == ErrorCode.out_of_order_sequence_number


def test_a_new_leader_does_not_take_the_second_batch_of_a_producer_for_its_first() -> None:
    partition = make(replicas=(1, 2))
    lead(partition, partition.leader_epoch, NOW_MS)
    assert produce(partition, idempotent(2)).error_code == ErrorCode.not_leader_or_follower
    assert produce(partition, idempotent(0)).base_offset == 0
    assert produce(partition, idempotent(2)).base_offset == 2
    # One whose beginning retention has taken goes on a little later.
    late = idempotent(7, producer_id=10)
    assert produce(partition, late, now_ms=NOW_MS + 2000).base_offset == 4


def test_a_node_without_others_has_nothing_to_take_over() -> None:
    partition = make()
    partition.lead_alone(partition.leader_epoch, LONG_AGO_MS)
    assert produce(partition, idempotent(2)).base_offset == 0
    assert produce(partition, idempotent(6)).error_code == ErrorCode.out_of_order_sequence_number


def test_an_old_epoch_is_fenced() -> None:
    partition = make()
    produce(partition, idempotent(0, epoch=1))
    assert produce(partition, idempotent(2, epoch=0)).error_code == ErrorCode.invalid_producer_epoch


def test_a_transactional_batch_has_no_transaction_to_belong_to() -> None:
    data = rewritten(idempotent(0), attributes=TRANSACTIONAL)
    assert produce(make(), data).error_code == ErrorCode.transactional_id_authorization_failed


def test_the_beginning_of_a_second_batch_is_left_out() -> None:
    partition = make()
    data = batch()
    assert not produce(partition, data + batch()[:20]).error_code
    assert partition.log.size == len(data)
    assert not produce(partition, batch() + b"123").error_code
    assert produce(partition, batch() + bytes(30)).error_code == ErrorCode.corrupt_message


def test_what_a_client_says_of_append_time_is_taken_back_or_refused() -> None:
    partition = make()
    data = rewritten(batch(timestamp=5), attributes=LOG_APPEND_TIME)
    assert not produce(partition, data).error_code
    kept = stored(partition)
    header = read_header(kept)
    assert crc_is_valid(kept, header)
    assert (header.attributes, header.max_timestamp) == (0, 5)
    answer = produce(make(timestamp_type="LogAppendTime"), rewritten(batch(), attributes=LOG_APPEND_TIME))
    assert answer.error_code == ErrorCode.invalid_timestamp
    assert [error.batch_index for error in answer.record_errors] == [0, 1]


def test_a_full_disk_refuses_writes_keeps_reads_and_recovers() -> None:
    disk = SimDisk()
    partition = make(disk)
    assert not produce(partition, batch()).error_code
    disk.capacity_bytes = disk.used_bytes()
    refused = produce(partition, batch())
    assert refused.error_code == ErrorCode.kafka_storage_error
    assert partition.log.log_end_offset == 2
    assert stored(partition)
    disk.capacity_bytes = None
    assert produce(partition, batch()).base_offset == 2


def test_acks_all_needs_as_many_in_sync_replicas_as_the_topic_asks_for() -> None:
    partition = make(replicas=(1, 2, 3), min_insync_replicas=2)
    assert produce(partition, batch(), acks=-1).error_code == ErrorCode.not_enough_replicas
    assert not produce(partition, batch(), acks=1).error_code
    # With a single replica there is nothing more to ask for (KIP-966).
    assert not produce(make(min_insync_replicas=2), batch(), acks=-1).error_code


@pytest.mark.parametrize(
    ("replicas", "flush_mode", "must_sync"),
    [((1,), "auto", True), ((1,), "none", False), ((1, 2, 3), "auto", False), ((1, 2, 3), "ack", True)],
)
def test_acks_all_waits_for_the_disk_where_no_other_replica_holds_it(
    replicas: tuple[int, ...], flush_mode: str, must_sync: bool
) -> None:
    assert make(replicas=replicas, flush_mode=flush_mode).must_sync is must_sync


def test_appends_tell_those_who_wait() -> None:
    partition = make()
    told: list[int] = []
    partition.append_listeners = {told.append: None}
    data = batch()
    produce(partition, data)
    assert told == [len(data)]
    produce(partition, batch()[:-1])
    assert told == [len(data)]
