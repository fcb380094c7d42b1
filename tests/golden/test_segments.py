"""Apache Kafka's own segments (segments/README.md) are read, recovered and written again to the byte."""

from pathlib import Path

import pytest

from penstock.log.checkpoints import (
    MetaProperties,
    format_offsets,
    format_partition_metadata,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.producer_snapshot import decode_snapshot
from penstock.log.producer_state import Producer
from penstock.protocol.batch import LOG_APPEND_TIME, read_header
from penstock.protocol.records import Record, iterate_records
from penstock.testing.sim_disk import SimDisk

SEGMENTS = Path(__file__).parent / "segments"
END_OFFSETS = {"codecs-0": 120, "append-time-0": 60, "idempotent-0": 170, "transactions-0": 121}
# A time at which none of the producers has expired.
NOW_MS = 1_760_000_000_000

every_partition = pytest.mark.parametrize("partition", list(END_OFFSETS))


def config_of(partition: str) -> LogConfig:
    is_small = partition in ("idempotent-0", "transactions-0")
    return LogConfig(index_interval_bytes=512, segment_bytes=6000 if is_small else 1 << 30)


def golden_files(partition: str, suffix: str = "") -> dict[str, bytes]:
    files = sorted((SEGMENTS / partition).iterdir())
    return {path.name: path.read_bytes() for path in files if path.name.endswith(suffix)}


def golden_disk(partition: str) -> SimDisk:
    disk = SimDisk()
    disk.make_directory(partition)
    for name, data in golden_files(partition).items():
        disk.write_file(f"{partition}/{name}", data)
    return disk


def open_log(disk: SimDisk, partition: str, *, clean: bool) -> Log:
    metadata = golden_files(partition)["partition.metadata"]
    return Log.open(
        disk,
        partition,
        config_of(partition),
        topic_id=parse_partition_metadata(metadata, partition),
        recovery_point=0,
        clean=clean,
        log_start_offset=0,
        now_ms=NOW_MS,
    )


def records_of(log: Log) -> list[Record]:
    records: list[Record] = []
    offset = log.log_start_offset
    while (found := log.read(offset, 1, log.log_end_offset)) is not None:
        batch = found.file.read(found.position, found.length)
        header = read_header(batch)
        records += iterate_records(batch, header)
        offset = header.last_offset + 1
    return records


def described(producers: dict[int, Producer]) -> dict[int, tuple[object, ...]]:
    return {
        producer_id: (
            producer.epoch,
            producer.coordinator_epoch,
            producer.last_timestamp,
            producer.transaction_first_offset,
            producer.batches[-1:],
        )
        for producer_id, producer in producers.items()
    }


def assert_same_files(disk: SimDisk, partition: str) -> None:
    """All of Kafka's files are there, byte for byte; snapshots may name their producers in another order."""
    for name, data in golden_files(partition).items():
        ours = disk.read_file(f"{partition}/{name}")
        if name.endswith(".snapshot"):
            assert described(decode_snapshot(ours)) == described(decode_snapshot(data)), name
        else:
            assert ours == data, name
    assert disk.list(partition) == list(golden_files(partition))


@every_partition
def test_kafkas_files_are_read_as_they_are(partition: str) -> None:
    disk = golden_disk(partition)
    log = open_log(disk, partition, clean=True)
    assert log.log_end_offset == END_OFFSETS[partition]
    assert [record.offset for record in records_of(log)] == list(range(END_OFFSETS[partition]))
    assert log.recovery_notes == ()
    log.close()
    assert_same_files(disk, partition)


@every_partition
def test_the_same_batches_make_the_same_files(partition: str) -> None:
    disk = SimDisk()
    log = open_log(disk, partition, clean=True)
    log.append_as_follower(b"".join(golden_files(partition, ".log").values()), NOW_MS)
    log.close()
    assert_same_files(disk, partition)


@every_partition
def test_recovery_makes_the_same_files_from_the_batches_alone(partition: str) -> None:
    disk = SimDisk()
    disk.make_directory(partition)
    for name, data in golden_files(partition, ".log").items():
        disk.write_file(f"{partition}/{name}", data)
    disk.write_file(f"{partition}/partition.metadata", golden_files(partition)["partition.metadata"])
    log = open_log(disk, partition, clean=False)
    assert log.log_end_offset == END_OFFSETS[partition]
    log.close()
    assert_same_files(disk, partition)


def test_all_codecs_unpack_to_the_same_records() -> None:
    records = records_of(open_log(golden_disk("codecs-0"), "codecs-0", clean=True))
    by_codec = [[record[1:] for record in records[start : start + 24]] for start in range(0, 120, 24)]
    assert all(of_codec == by_codec[0] for of_codec in by_codec)
    assert by_codec[0][0][1] is None
    assert by_codec[0][1] == (NOW_MS - 7, b"key-1", None, (("trace", b"abc"), ("empty", b""), ("null", None)))


def test_log_append_time_batches_carry_the_brokers_time() -> None:
    (data,) = golden_files("append-time-0", ".log").values()
    header = read_header(data)
    assert header.attributes & LOG_APPEND_TIME
    assert {record.timestamp for record in iterate_records(data, header)} == {header.max_timestamp}


def test_an_open_transaction_holds_the_last_stable_offset_back() -> None:
    log = open_log(golden_disk("transactions-0"), "transactions-0", clean=True)
    assert log.last_stable_offset(log.log_end_offset) == END_OFFSETS["transactions-0"] - 1


def test_aborted_transactions_are_found_across_segments() -> None:
    log = open_log(golden_disk("transactions-0"), "transactions-0", clean=True)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    # Numbers 1, 4, 7, 10 of the first producer and the odd ones of the second.
    assert len(aborted) == 4 + 6
    assert [transaction.last_offset for transaction in aborted] == sorted(
        transaction.last_offset for transaction in aborted
    )
    assert log.aborted_transactions(0, 5) == []


def test_partition_metadata_is_written_as_kafka_writes_it() -> None:
    data = golden_files("codecs-0")["partition.metadata"]
    assert format_partition_metadata(parse_partition_metadata(data, "codecs-0")) == data


def test_offset_checkpoints_are_written_as_kafka_writes_them() -> None:
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        data = (SEGMENTS / name).read_bytes()
        assert format_offsets(parse_offsets(data, name)) == data
    recovery_points = parse_offsets((SEGMENTS / "recovery-point-offset-checkpoint").read_bytes(), "")
    assert recovery_points["idempotent", 0] == END_OFFSETS["idempotent-0"]


def test_meta_properties_of_kafka_are_read() -> None:
    data = (SEGMENTS / "meta.properties").read_bytes()
    expected = MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, "sFA_fAfDTSWh9I9UE7FyHg")
    assert parse_meta_properties(data, "meta.properties") == expected
