"""Compaction keeps the last record of each key, where it is, and forgets nothing else that anybody needs."""

import pytest

from penstock.log.compaction import Compaction, CompactionJob, SourceSegment, Step, grouped
from penstock.log.compaction_plan import examine
from penstock.log.scan import CorruptSegment
from penstock.protocol.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL, read_header
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.compacted import (
    COMPACTED,
    compact,
    headers_in,
    job_of,
    pairs_in,
    put,
    records_in,
)
from tests.unit.log.made import (
    DIRECTORY,
    NOW_MS,
    append,
    complaints_about_indexes,
    file_bytes,
    make_marker,
    open_log,
    read_everything,
)

RETENTION_MS = COMPACTED.delete_retention_ms


def test_the_textbook_example() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    for offset in range(60):
        key = {10: b"user_123", 30: b"user_456", 50: b"user_123"}.get(offset, b"other")
        assert put(log, (key, b"value %d" % offset)) == offset
    log.roll(NOW_MS)
    compact(disk, log)
    assert pairs_in(log) == {
        30: (b"user_456", b"value 30"),
        50: (b"user_123", b"value 50"),
        59: (b"other", b"value 59"),
    }
    assert log.log_end_offset == 60

    put(log, (b"user_123", None))
    log.roll(NOW_MS)
    done = compact(disk, log, 60)
    assert done.end_offset == 61
    assert pairs_in(log) == {30: (b"user_456", b"value 30"), 59: (b"other", b"value 59"), 60: (b"user_123", None)}
    # The tombstone is there for delete.retention.ms, so that every reader sees it; then it goes.
    put(log, (b"else", b""))
    log.roll(NOW_MS)
    compact(disk, log, 61, NOW_MS + RETENTION_MS - 1)
    assert 60 in pairs_in(log)
    compact(disk, log, 62, NOW_MS + RETENTION_MS)
    assert pairs_in(log) == {30: (b"user_456", b"value 30"), 59: (b"other", b"value 59"), 61: (b"else", b"")}


@pytest.mark.parametrize("codec", range(5))
def test_batches_keep_their_codec_offsets_timestamps_and_header_facts(codec: int) -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    records = [Record(i, NOW_MS + 10 * i, b"k%d" % (i % 3), b"v%d" % i, (("h", b"x"), ("n", None))) for i in range(7)]
    batch = build_batch(records, codec=codec, leader_epoch=4, producer_id=9, producer_epoch=2, base_sequence=70)
    append(log, batch, leader_epoch=4)
    log.roll(NOW_MS)
    before = headers_in(log)[0]
    compact(disk, log)
    (after,) = headers_in(log)
    assert records_in(log) == records[4:]
    assert after._replace(batch_length=0, crc=0, record_count=7) == before._replace(batch_length=0, crc=0)
    assert after.record_count == 3


def test_the_largest_timestamp_is_that_of_the_records_that_stay() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    records = [Record(0, NOW_MS + 500, b"a", b"1"), Record(1, NOW_MS, b"a", b"2"), Record(2, NOW_MS - 7, b"b", b"3")]
    append(log, build_batch(records))
    log.roll(NOW_MS)
    compact(disk, log)
    assert headers_in(log)[0].max_timestamp == NOW_MS
    assert records_in(log) == records[1:]
    found = log.max_timestamp_offset()
    assert found is not None
    assert found.offset == 1


def test_batches_of_which_nothing_goes_keep_their_bytes() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    for number in range(100):
        put(log, (b"k%d" % number, bytes(50)), codec=number % 5)
    log.roll(NOW_MS)
    before = read_everything(log)
    done = compact(disk, log)
    assert read_everything(log) == before
    # Segments that are full already are left alone.
    assert done.doomed == []
    assert done.finished.bytes_after == done.finished.bytes_before


def test_records_without_a_key_go() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, (None, b"1"), (b"a", b"2"), (None, None))
    put(log, (b"", b"an empty key is one"))
    log.roll(NOW_MS)
    compact(disk, log)
    assert pairs_in(log) == {1: (b"a", b"2"), 3: (b"", b"an empty key is one")}


def test_keys_in_compacted_segments_give_way_to_later_ones() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    log.roll(NOW_MS)
    done = compact(disk, log)
    put(log, (b"b", b"4"))
    log.roll(NOW_MS)
    compact(disk, log, done.end_offset)
    assert pairs_in(log) == {0: (b"a", b"1"), 2: (b"c", b"3"), 3: (b"b", b"4")}


def test_the_active_segment_is_left_alone() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), (b"a", b"3"))
    compact(disk, log)
    assert pairs_in(log) == {0: (b"a", b"1"), 1: (b"a", b"2"), 2: (b"a", b"3")}


def test_a_full_map_ends_the_pass_and_the_next_one_goes_on_there() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    for number in range(200):
        put(log, (b"k%d" % (number % 50), b"%d" % number), (b"x%d" % number, b""))
    log.roll(NOW_MS)
    end_offset = 0
    passes = 0
    while end_offset < log.segments.active.base_offset:
        done = compact(disk, log, end_offset, memory_bytes=900)
        assert done.end_offset > end_offset
        assert done.finished.keys <= 40
        end_offset = done.end_offset
        passes += 1
    assert passes > 5
    expected = {2 * n: (b"k%d" % (n % 50), b"%d" % n) for n in range(150, 200)}
    expected |= {2 * n + 1: (b"x%d" % n, b"") for n in range(200)}
    assert pairs_in(log) == expected


def test_one_batch_larger_than_the_map_is_compacted_in_parts() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, *[(b"k%d" % number, b"") for number in range(60)], *[(b"k%d" % number, b"2") for number in range(60)])
    log.roll(NOW_MS)
    end_offset = 0
    while end_offset < 120:
        end_offset = compact(disk, log, end_offset, memory_bytes=500).end_offset
    assert pairs_in(log) == {60 + number: (b"k%d" % number, b"2") for number in range(60)}


def test_small_segments_become_one() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    for number in range(40):
        put(log, (b"k%d" % (number % 4), bytes(200)))
    log.roll(NOW_MS)
    assert len(file_bytes(disk)) > 5
    end_offset = compact(disk, log).end_offset
    compact(disk, log, end_offset)
    # The first pass makes them small, the second one joins them.
    assert len([name for name in file_bytes(disk) if name.endswith(".log")]) == 1
    assert set(pairs_in(log)) == {36, 37, 38, 39}
    log.close()
    assert complaints_about_indexes(disk) == []


def job(segments: list[SourceSegment], upper_offset: int) -> CompactionJob:
    return CompactionJob("", segments, 0, upper_offset, [], {}, 0, 0, 100, 80, 1, 1, 0.9)


def test_grouping_keeps_to_size_index_and_relative_offsets() -> None:
    def groups(*segments: tuple[int, int, int], upper_offset: int = 1 << 40) -> list[list[int]]:
        sources = [SourceSegment(*segment) for segment in segments]
        return [[one.base_offset for one in group] for group in grouped(sources, job(sources, upper_offset))]

    assert groups((0, 60, 8), (5, 40, 8), (9, 1, 8), upper_offset=10) == [[0, 5], [9]]
    assert groups((0, 10, 40), (5, 10, 40), (9, 10, 8), upper_offset=10) == [[0, 5], [9]]
    assert groups((0, 10, 8), (5, 10, 8), upper_offset=2**31) == [[0, 5]]
    assert groups((0, 10, 8), (5, 10, 8), upper_offset=2**31 + 1) == [[0], [5]]
    assert groups((0, 0, 0), (2**31, 10, 8), upper_offset=2**31 + 5) == [[0], [2**31]]
    assert groups() == []


def test_the_last_batch_of_a_segment_stays_so_that_there_is_no_hole_between_segments() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, (b"a", bytes(1500)))
    put(log, (b"a", bytes(1500)))
    put(log, (b"a", bytes(1500)))
    log.roll(NOW_MS)
    compact(disk, log)
    assert [(header.base_offset, header.record_count) for header in headers_in(log)] == [(0, 0), (1, 0), (2, 1)]
    compact(disk, log, 3)
    assert [header.base_offset for header in headers_in(log)] == [2]


@pytest.mark.parametrize("position", [3, 20, 40, 65, 69, 70, 79, 90, 139])
def test_a_damaged_batch_stops_the_pass_and_nothing_is_replaced(position: int) -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    before = file_bytes(disk)
    assert len(before[f"{0:020d}.log"]) == 140
    disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", position)
    with pytest.raises(CorruptSegment):
        compact(disk, log)
    assert set(file_bytes(disk)) == set(before)


# Producers and transactions


def produced(
    key: bytes, sequence: int, *, producer_id: int = 8, epoch: int = 0, transactional: bool = True
) -> bytearray:
    return build_batch(
        [Record(0, NOW_MS, key, b"%d" % sequence)],
        attributes=TRANSACTIONAL if transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def test_the_last_batch_of_a_producer_stays_without_records() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    append(log, produced(b"a", 0, transactional=False))
    append(log, produced(b"a", 1, transactional=False))
    put(log, (b"a", b"later"))
    log.roll(NOW_MS)
    compact(disk, log)
    first, _ = headers_in(log)
    assert (first.base_offset, first.record_count, first.base_sequence, first.producer_id) == (1, 0, 1, 8)
    assert pairs_in(log) == {2: (b"a", b"later")}
    log.close(clean=False)
    disk.remove(f"{DIRECTORY}/{3:020d}.snapshot")
    log = open_log(disk, COMPACTED, clean=False)
    assert log.check_producer(read_header(produced(b"x", 2, transactional=False))) is None
    assert log.check_producer(read_header(produced(b"x", 3, transactional=False))) is not None


def test_aborted_records_go_and_markers_outlive_them_by_the_retention_of_deletes() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, (b"a", b"before"))
    append(log, produced(b"a", 0))
    append(log, produced(b"b", 1))
    append(log, make_marker(8, 0, abort=True))
    # Another transaction, so that the aborted one's batches are not the producer's last.
    append(log, produced(b"c", 2))
    append(log, make_marker(8, 0, abort=False))
    put(log, (b"z", b""))
    log.roll(NOW_MS)
    assert len(log.aborted_transactions(0, 7)) == 1
    end_offset = compact(disk, log).end_offset
    assert pairs_in(log) == {0: (b"a", b"before"), 4: (b"c", b"2"), 6: (b"z", b"")}
    markers = [header.base_offset for header in headers_in(log) if header.attributes & CONTROL]
    assert markers == [3, 5]
    # Readers who have met the records still need to be told of the abort.
    assert len(log.aborted_transactions(0, 7)) == 1

    compact(disk, log, end_offset, NOW_MS + 10)
    horizons = {h.base_offset: h.base_timestamp for h in headers_in(log) if h.attributes & DELETE_HORIZON}
    assert horizons == {3: NOW_MS + 10 + RETENTION_MS}
    assert log.aborted_transactions(0, 7) == []
    compact(disk, log, end_offset, NOW_MS + 10 + RETENTION_MS)
    assert [header.base_offset for header in headers_in(log) if header.attributes & CONTROL] == [5]
    # The commit marker's record is still there, and so it stays whatever the time.
    compact(disk, log, end_offset, NOW_MS * 2)
    assert pairs_in(log) == {0: (b"a", b"before"), 4: (b"c", b"2"), 6: (b"z", b"")}
    assert [header.base_offset for header in headers_in(log) if header.attributes & CONTROL] == [5]


def test_nothing_of_an_open_transaction_is_compacted() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    append(log, produced(b"a", 0))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    assert examine(log, None, log.log_end_offset, NOW_MS).upper_offset == 1
    append(log, make_marker(8, 0, abort=False))
    log.roll(NOW_MS)
    assert examine(log, None, log.log_end_offset, NOW_MS).upper_offset == 4


def test_a_transaction_that_spans_segments_is_aborted_in_all_of_them() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    for sequence in range(30):
        append(log, produced(b"k%d" % sequence, sequence))
        put(log, (b"k%d" % sequence, b"stays"))
    append(log, make_marker(8, 0, abort=True))
    put(log, (b"z", b""))
    log.roll(NOW_MS)
    assert len(file_bytes(disk)) > 2
    compact(disk, log)
    assert all(value == b"stays" for key, value in pairs_in(log).values() if key != b"z")
    assert len(pairs_in(log)) == 31
    assert len(log.aborted_transactions(0, 62)) == 1


def test_steps_name_every_byte_read_and_written() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    for number in range(100):
        put(log, (b"k%d" % (number % 7), bytes(100)))
    log.roll(NOW_MS)
    size = sum(segment.size for segment in log.segments.sealed)
    steps = [step for step in Compaction(disk, job_of(log, None)).steps() if isinstance(step, Step)]
    assert sum(step.bytes_read for step in steps) == 2 * size
