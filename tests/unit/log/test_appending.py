"""When a log rolls, what it refuses, and what a refusing disk leaves of it."""

from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.ports import RESERVED_BYTES, RealDisk
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.protocol.batch import NO_TIMESTAMP, encode_batch, read_header
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.made import (
    DIRECTORY,
    NOW_MS,
    append,
    file_bytes,
    make_batch,
    make_marker,
    open_log,
    read_everything,
)


def base_offsets(disk: SimDisk) -> list[int]:
    return [int(name[:20]) for name in file_bytes(disk)]


def test_a_segment_is_rolled_before_it_would_grow_beyond_its_size() -> None:
    disk = SimDisk()
    batch_bytes = len(make_batch())
    log = open_log(disk, LogConfig(segment_bytes=3 * batch_bytes))
    for _ in range(7):
        append(log, make_batch())
    assert base_offsets(disk) == [0, 3, 6]


def test_a_segment_is_rolled_by_the_time_of_its_first_batch() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_ms=100))
    for timestamp in (NOW_MS, NOW_MS + 100, NOW_MS + 101, NOW_MS, NOW_MS + 201, NOW_MS + 202):
        append(log, make_batch([timestamp]))
    assert base_offsets(disk) == [0, 2, 5]


def test_batches_without_timestamp_are_rolled_by_the_clock() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_ms=100))
    for now_ms in (NOW_MS, NOW_MS + 100, NOW_MS + 101):
        append(log, make_batch([NO_TIMESTAMP]), now_ms=now_ms)
    assert base_offsets(disk) == [0, 2]


def test_jitter_rolls_earlier_and_the_same_way_every_time() -> None:
    rolled = []
    for _ in range(2):
        disk = SimDisk()
        log = open_log(disk, LogConfig(segment_ms=1000, segment_jitter_ms=900))
        for step in range(0, 3000, 10):
            append(log, make_batch([NOW_MS + step]))
        rolled.append(base_offsets(disk))
    assert rolled[0] == rolled[1]
    assert len(rolled[0]) > 3


def test_a_full_index_rolls_the_segment() -> None:
    disk = SimDisk()
    # Four entries for the time index, one of which is kept for the end; each batch but the first adds one.
    log = open_log(disk, LogConfig(segment_index_bytes=48, index_interval_bytes=1))
    for number in range(9):
        append(log, make_batch([NOW_MS + number]))
    assert base_offsets(disk) == [0, 4, 8]
    assert all(len(data) <= 48 for data in file_bytes(disk, "index").values())


def test_offsets_too_far_from_the_base_roll_the_segment() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, make_batch())
    far = 2**31 + 5
    log.append_as_follower(bytes(make_batch(base_offset=far, leader_epoch=0)), NOW_MS)
    assert base_offsets(disk) == [0, far]
    assert log.read(1, 100, log.log_end_offset) == log.read(far, 100, log.log_end_offset)


COMPACTED = LogConfig(cleanup_policy=("compact",))


def test_offsets_that_jump_in_an_empty_compacted_log_leave_an_empty_segment_behind() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    far = 2**31 + 5
    log.append_as_follower(bytes(make_batch(base_offset=far, leader_epoch=0)), NOW_MS)
    flush = log.flush()
    for file in flush.files:
        file.sync()
    log.mark_flushed(flush)
    log.close()
    for clean in (True, False):
        log = open_log(disk, COMPACTED, clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (0, far + 1)
        assert log.read(0, 100, far + 1) == log.read(far, 100, far + 1)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(SimDisk(), LogConfig(segment_bytes=100))
    with pytest.raises(Refused) as refused:
        append(log, make_batch(value_bytes=100))
    assert refused.value.code == ErrorCode.record_list_too_large
    assert log.log_end_offset == 0


def test_new_settings_are_followed_at_once() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, make_batch())
    log.reconfigure(LogConfig(segment_bytes=100))
    append(log, make_batch())
    assert base_offsets(disk) == [0, 1]


@pytest.mark.parametrize("operation", ["append", "write_file"])
def test_a_failing_disk_leaves_the_log_as_it_was(operation: str) -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_bytes=200))
    batches: list[bytes] = []
    for number in range(6):
        batch = make_batch([NOW_MS + number], producer=(5, 0, number))
        # The third and the fifth batch go into new segments.
        if number in (2, 4):
            disk.fail(operation)
            with pytest.raises(DiskError):
                append(log, batch)
            assert log.log_end_offset == number
            assert read_everything(log) == b"".join(batches)
        assert log.check_producer(read_header(batch)) is None
        append(log, batch)
        batches.append(bytes(batch))
    assert read_everything(log) == b"".join(batches)
    log.close()
    assert read_everything(open_log(disk, clean=False)) == b"".join(batches)


def test_an_abort_that_could_not_be_written_is_in_no_index() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, make_batch(producer=(5, 0, 0), transactional=True))
    disk.fail("append", ".log")
    with pytest.raises(DiskError):
        append(log, make_marker(5, 0, abort=True))
    assert log.aborted_transactions(0, 10) == []
    assert log.last_stable_offset(1) == 0
    append(log, make_marker(5, 0, abort=True))
    assert len(log.aborted_transactions(0, 10)) == 1
    assert log.last_stable_offset(2) == 2


def test_a_follower_takes_batches_as_they_are_and_leaves_out_a_cut_one() -> None:
    disk = SimDisk()
    log = open_log(disk)
    batches = [bytes(make_batch([NOW_MS] * 3, base_offset=offset, leader_epoch=2)) for offset in (5, 8, 20)]
    log.append_as_follower(b"".join(batches)[:-1], NOW_MS)
    assert log.log_end_offset == 11
    assert disk.read_file(f"{DIRECTORY}/{0:020d}.log") == batches[0] + batches[1]
    assert log.latest_epoch == 2


@pytest.mark.parametrize("position", [0, 8, 16, 30, 70])
def test_a_follower_refuses_what_cannot_follow(position: int) -> None:
    log = open_log(SimDisk())
    log.append_as_follower(bytes(make_batch(base_offset=5)), NOW_MS)
    damaged = make_batch(base_offset=6)
    damaged[position] ^= 0x83
    with pytest.raises(Refused) as refused:
        log.append_as_follower(bytes(damaged), NOW_MS)
    assert refused.value.code == ErrorCode.corrupt_message
    assert log.log_end_offset == 6


def test_dropped_segments_can_still_be_read_by_who_holds_a_slice() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_bytes=200))
    for _ in range(6):
        append(log, make_batch())
    found = log.read(0, 1000, 6)
    assert found is not None
    data = found.file.read(found.position, found.length)
    paths = log.advance_log_start(5)
    assert all(path.endswith(".deleted") and disk.exists(path) for path in paths)
    assert found.file.read(found.position, found.length) == data
    assert (log.log_start_offset, base_offsets(disk)[0]) == (5, 4)
    with pytest.raises(Refused):
        log.advance_log_start(7)


def test_truncating_fully_begins_anew_and_survives_a_restart() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, make_batch(producer=(5, 0, 0)))
    for path in log.truncate_fully_and_start_at(100, NOW_MS):
        disk.remove(path)
    log.close()
    for clean in (True, False):
        log = open_log(disk, clean=clean)
        assert (log.log_start_offset, log.log_end_offset, log.producers.producers) == (100, 100, {})
    assert append(log, make_batch()) == 100


def test_a_leader_epoch_without_data_needs_no_directory() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.assign_epoch(5, 0)
    assert log.end_offset_for_epoch(5) == (5, 0)
    log.close()
    assert disk.list("") == []


def test_a_deleted_log_leaves_its_name_free() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, make_batch())
    path = log.delete()
    assert disk.list("") == [path]
    assert path.startswith(DIRECTORY)
    assert path.endswith("-delete")
    assert open_log(disk).log_end_offset == 0


def test_the_first_record_with_the_largest_timestamp_is_found_across_segments() -> None:
    log: Log = open_log(SimDisk(), LogConfig(segment_bytes=300))
    for timestamps in ([1, 5], [9, 2, 9], [3], [9], [8, 8], [1]):
        append(log, make_batch(timestamps))
    assert log.max_timestamp_offset() == (2, 9)


def test_records_that_do_not_unpack_are_reported_as_corrupt() -> None:
    log = open_log(SimDisk())
    nonsense = encode_batch(b"nonsense", record_count=1, base_timestamp=5, max_timestamp=5)
    append(log, nonsense)
    with pytest.raises(Refused) as refused:
        log.offset_for_timestamp(5)
    assert refused.value.code == ErrorCode.corrupt_message
    with pytest.raises(Refused):
        log.max_timestamp_offset()


def test_only_what_grew_is_synced() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_bytes=200))
    append(log, make_batch())
    first = log.flush()
    assert [file.path for file in first.files] == [f"{DIRECTORY}/{0:020d}.log"]
    append(log, make_batch())
    log.mark_flushed(first)
    assert log.recovery_point == 1
    for _ in range(2):
        append(log, make_batch())
    names = {file.path.split("/")[1] for file in log.flush().files}
    zero, two = f"{0:020d}", f"{2:020d}"
    assert names == {
        f"{zero}.log",
        f"{zero}.index",
        f"{zero}.timeindex",
        f"{two}.snapshot",
        f"{two}.log",
        "leader-epoch-checkpoint",
    }
    log.mark_flushed(log.flush())
    assert log.flush().files == []


def test_a_sealed_segment_takes_no_more_space_than_its_bytes(tmp_path: Path) -> None:
    log = open_log(RealDisk(str(tmp_path)), LogConfig())
    for _ in range(12):
        append(log, make_batch(value_bytes=RESERVED_BYTES // 8))
    log.roll(NOW_MS)
    status = (tmp_path / DIRECTORY / f"{0:020d}.log").stat()
    assert status.st_size > 12 * RESERVED_BYTES // 8
    assert status.st_blocks * 512 < status.st_size + RESERVED_BYTES // 8
    log.close()
