"""What a log makes of its files after a crash."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.producer_state import ProducerState
from penstock.protocol.batch import read_header
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.made import (
    DIRECTORY,
    NOW_MS,
    append,
    complaints_about_indexes,
    file_bytes,
    make_batch,
    make_marker,
    open_log,
    read_everything,
)

LOG_PATH = f"{DIRECTORY}/{0:020d}.log"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def synced_log(count: int, config: LogConfig | None = None) -> tuple[SimDisk, list[bytes]]:
    """A disk with `count` batches of one record each, all of which reached it before the crash."""
    disk = SimDisk()
    log = open_log(disk, config)
    batches = []
    for _ in range(count):
        batch = make_batch()
        append(log, batch)
        batches.append(bytes(batch))
    disk.sync_all()
    return disk, batches


def corrupt_names(disk: SimDisk) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.endswith(".corrupt")]


def test_a_torn_tail_is_cut_wherever_it_tore() -> None:
    disk, batches = synced_log(3)
    whole = disk.read_file(LOG_PATH)
    for missing in range(1, len(batches[2])):
        disk.open(LOG_PATH).truncate(0)
        disk.open(LOG_PATH).append(whole[:-missing])
        log = open_log(disk, clean=False)
        assert log.log_end_offset == 2
        assert read_everything(log) == batches[0] + batches[1]
        assert len(log.recovery_notes) == 1
        assert corrupt_names(disk) == []


def test_a_tail_of_zeros_is_cut() -> None:
    disk, batches = synced_log(2)
    disk.open(LOG_PATH).append(bytes(5000))
    log = open_log(disk, clean=False)
    assert read_everything(log) == b"".join(batches)
    assert corrupt_names(disk) == []


@settings(max_examples=150, deadline=None)
@given(position=st.integers(16, 80), bit=st.integers(0, 7))
def test_damage_before_valid_batches_ends_the_log_there_but_loses_no_byte(position: int, bit: int) -> None:
    # Base offset and leader epoch, bytes 0-7 and 12-15, are not under the checksum; the length has its own test.
    disk, batches = synced_log(4)
    assert len(batches[1]) == 81
    disk.flip_bit(LOG_PATH, len(batches[0]) + position, bit)
    cut = disk.read_file(LOG_PATH)[len(batches[0]) :]
    log = open_log(disk, clean=False)
    assert read_everything(log) == batches[0]
    assert [disk.read_file(f"{DIRECTORY}/{name}") for name in corrupt_names(disk)] == [cut]
    assert "valid batches may follow" in log.recovery_notes[0]
    assert append(log, make_batch()) == 1


@pytest.mark.parametrize("bit", range(31))
def test_a_damaged_length_does_not_hide_the_batches_after_it(bit: int) -> None:
    disk, batches = synced_log(4)
    disk.flip_bit(LOG_PATH, len(batches[0]) + 11 - bit // 8, bit % 8)
    log = open_log(disk, clean=False)
    assert read_everything(log) == batches[0]
    assert len(corrupt_names(disk)) == 1


def test_segments_after_the_damage_are_set_aside() -> None:
    disk, batches = synced_log(12, SMALL)
    files = file_bytes(disk)
    assert len(files) == 3
    disk.flip_bit(LOG_PATH, 90)
    log = open_log(disk, SMALL, clean=False)
    assert read_everything(log) == batches[0]
    kept = [disk.read_file(f"{DIRECTORY}/{name}") for name in corrupt_names(disk)]
    assert kept[1:] == list(files.values())[1:]
    assert len(log.recovery_notes) == 3
    append(log, make_batch())
    log.close()
    assert complaints_about_indexes(disk) == []


def test_segments_below_the_recovery_point_are_not_read() -> None:
    disk, _ = synced_log(12, SMALL)
    active_base = int(list(file_bytes(disk))[-1][:20])
    disk.flip_bit(LOG_PATH, 90)
    log = open_log(disk, SMALL, clean=False, recovery_point=active_base)
    assert log.log_end_offset == 12
    assert log.recovery_notes == ()


def test_a_batch_that_repeats_offsets_ends_the_log() -> None:
    disk, batches = synced_log(2)
    disk.open(LOG_PATH).append(batches[1])
    log = open_log(disk, clean=False)
    assert read_everything(log) == b"".join(batches)


def test_a_missing_index_is_made_anew() -> None:
    disk, batches = synced_log(12, SMALL)
    indexes = file_bytes(disk, "index")
    for name in indexes:
        disk.remove(f"{DIRECTORY}/{name}")
    active_base = int(list(file_bytes(disk))[-1][:20])
    log = open_log(disk, SMALL, clean=False, recovery_point=active_base)
    assert read_everything(log) == b"".join(batches)
    assert indexes.items() <= file_bytes(disk, "index").items()


def test_leftovers_of_deletion_and_cleaning_are_dropped() -> None:
    disk, batches = synced_log(3)
    for name in (f"{7:020d}.log.deleted", f"{0:020d}.log.cleaned", f"{0:020d}.index.cleaned"):
        disk.write_file(f"{DIRECTORY}/{name}", b"x")
    assert read_everything(open_log(disk, clean=False)) == b"".join(batches)
    assert all(not name.endswith((".deleted", ".cleaned")) for name in disk.list(DIRECTORY))


def test_a_finished_swap_takes_the_place_of_the_segments_it_spans() -> None:
    disk, batches = synced_log(12, SMALL)
    bases = [int(name[:20]) for name in file_bytes(disk)]
    # Compaction left only the last batch of the first two segments; a crash came before the originals were gone.
    survivor = batches[bases[2] - 1]
    disk.write_file(f"{LOG_PATH}.swap", survivor)
    log = open_log(disk, SMALL, clean=False)
    assert read_everything(log) == survivor + b"".join(batches[bases[2] :])
    assert [int(name[:20]) for name in file_bytes(disk)] == [bases[0], bases[2]]


def test_a_swap_beside_unfinished_cleaning_is_dropped() -> None:
    disk, batches = synced_log(12, SMALL)
    disk.write_file(f"{LOG_PATH}.swap", batches[0])
    disk.write_file(f"{LOG_PATH}.cleaned", batches[0])
    assert read_everything(open_log(disk, SMALL, clean=False)) == b"".join(batches)


def test_a_clean_start_reads_no_segment() -> None:
    disk, batches = synced_log(5, LogConfig(index_interval_bytes=100))
    open_log(disk, LogConfig(index_interval_bytes=100), clean=False).close()
    disk.fail("read", ".log", DiskError("it was to be left alone"))
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (0, 5, sum(map(len, batches)))
    assert log.read(5, 100, 5) is None
    with pytest.raises(DiskError):
        log.read(0, 100, 5)


def test_a_log_of_a_few_batches_speaks_for_itself() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, make_batch([NOW_MS + 5], producer=(7, 0, 0)), leader_epoch=1)
    append(log, make_batch([NOW_MS], producer=(7, 0, 1)), leader_epoch=2)
    log.close()
    assert disk.list(DIRECTORY) == [f"{0:020d}.log"]
    log = open_log(disk)
    assert (log.log_end_offset, log.max_timestamp_offset()) == (2, (0, NOW_MS + 5))
    assert log.epochs.entries() == [(1, 0), (2, 1)]
    assert len(log.producers.producers[7].batches) == 2
    assert log.recovery_notes == ()


def test_files_beside_a_small_log_are_kept_up_once_they_are_there() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(index_interval_bytes=10))
    append(log, make_batch())
    log.close()
    log = open_log(disk)
    append(log, make_batch([NOW_MS + 5]), leader_epoch=1)
    log.close()
    log = open_log(disk)
    assert (log.log_end_offset, log.max_timestamp_offset()) == (2, (1, NOW_MS + 5))
    assert log.epochs.entries() == [(0, 0), (1, 1)]
    assert log.recovery_notes == ()
    assert complaints_about_indexes(disk) == []


def test_a_new_log_makes_no_file_before_the_first_append() -> None:
    disk = SimDisk()
    log = open_log(disk)
    assert log.read(0, 100, 0) is None
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None
    assert log.end_offset_for_epoch(0) == (-1, -1)
    log.close()
    assert disk.list("") == []


def test_a_directory_of_another_topic_is_refused() -> None:
    disk = SimDisk()

    def opened(topic_id: UUID) -> Log:
        return Log.open(
            disk,
            DIRECTORY,
            LogConfig(),
            topic_id=topic_id,
            recovery_point=0,
            clean=True,
            log_start_offset=0,
            now_ms=NOW_MS,
        )

    append(opened(UUID(int=1)), make_batch())
    assert opened(UUID(int=1)).log_end_offset == 1
    with pytest.raises(Refused) as refused:
        opened(UUID(int=2))
    assert refused.value.code == ErrorCode.inconsistent_topic_id


def test_a_log_that_ends_before_its_start_begins_anew() -> None:
    disk, _ = synced_log(3)
    for clean in (True, False):
        log = open_log(disk, clean=clean, log_start_offset=10)
        assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert append(log, make_batch()) == 10


def test_leader_epochs_are_read_from_the_batches_when_their_file_is_gone() -> None:
    disk = SimDisk()
    log = open_log(disk, SMALL)
    for epoch in (0, 0, 3, 3, 3, 4, 4):
        append(log, make_batch(), leader_epoch=epoch)
    log.close()
    expected = [(0, 0), (3, 2), (4, 5)]
    for data in (None, b"nonsense\n\n"):
        disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
        if data is not None:
            disk.write_file(f"{DIRECTORY}/leader-epoch-checkpoint", data)
        for clean in (True, False):
            assert open_log(disk, SMALL, clean=clean).epochs.entries() == expected


def described(state: ProducerState) -> dict[int, tuple[object, ...]]:
    return {
        producer_id: (
            producer.epoch,
            producer.coordinator_epoch,
            producer.last_timestamp,
            producer.transaction_first_offset,
            producer.batches,
        )
        for producer_id, producer in state.producers.items()
    }


@st.composite
def producer_batches(draw: st.DrawFn) -> list[bytearray]:
    """Batches and markers of a few producers, in sequence."""
    sequences: dict[int, int] = {}
    batches = []
    for _ in range(draw(st.integers(1, 25))):
        producer_id = draw(st.integers(0, 3))
        if producer_id < 2 and draw(st.integers(0, 3)) == 0:
            batches.append(make_marker(producer_id, 0, abort=draw(st.booleans())))
            continue
        count = draw(st.integers(1, 4))
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + count
        timestamps = [NOW_MS] * count
        batches.append(make_batch(timestamps, producer=(producer_id, 0, sequence), transactional=producer_id < 2))
    return batches


@settings(max_examples=100, deadline=None)
@given(batches=producer_batches(), damage_snapshots=st.booleans(), flushed=st.booleans())
def test_producers_and_aborts_are_the_same_after_a_crash(
    batches: list[bytearray], damage_snapshots: bool, flushed: bool
) -> None:
    disk = SimDisk()
    log = open_log(disk, SMALL)
    for batch in batches:
        assert append(log, batch) == read_header(batch).base_offset
    end_offset = log.log_end_offset
    before = described(log.producers)
    stable, aborted = log.last_stable_offset(end_offset), log.aborted_transactions(0, end_offset)
    if flushed:
        log.mark_flushed(log.flush())
    disk.sync_all()
    if damage_snapshots:
        for name in file_bytes(disk, ".snapshot"):
            disk.flip_bit(f"{DIRECTORY}/{name}", 9)
    log = open_log(disk, SMALL, clean=False, recovery_point=log.recovery_point)
    assert described(log.producers) == before
    assert log.last_stable_offset(end_offset) == stable
    assert log.aborted_transactions(0, end_offset) == aborted
    log.close()
    assert described(open_log(disk, SMALL).producers) == before


@settings(max_examples=60, deadline=None)
@given(batches=producer_batches(), fraction=st.floats(0, 1))
def test_producers_after_a_truncation_are_those_of_the_batches_left(batches: list[bytearray], fraction: float) -> None:
    disk, expected_disk = SimDisk(), SimDisk()
    log, expected = open_log(disk, SMALL), open_log(expected_disk, SMALL)
    kept = int(fraction * len(batches))
    for number, batch in enumerate(batches):
        append(log, batch)
        if number < kept:
            append(expected, batch)
    log.truncate_to(expected.log_end_offset, NOW_MS)
    end_offset = expected.log_end_offset
    assert described(log.producers) == described(expected.producers)
    assert log.last_stable_offset(end_offset) == expected.last_stable_offset(end_offset)
    assert log.aborted_transactions(0, end_offset) == expected.aborted_transactions(0, end_offset)


def test_a_segment_behind_a_hole_is_set_aside() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(3):
        append(log, make_batch())
    log.roll(NOW_MS)
    append(log, make_batch())
    second_base = log.log_end_offset - 1
    first = disk.open(f"{DIRECTORY}/{0:020d}.log")
    # A power cut took the last batch of the first segment and nothing else.
    first.truncate(first.size() * 2 // 3)
    recovered = open_log(disk, clean=False)
    assert recovered.log_end_offset == second_base - 1
    assert any("set aside" in note for note in recovered.recovery_notes)
    assert append(recovered, make_batch()) == second_base - 1


COMPACTED = LogConfig(cleanup_policy=("compact",))


def test_a_segment_of_a_compacted_log_behind_a_hole_is_set_aside_too() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    append_apart(log, 0, 10, 20)
    log.roll(NOW_MS)
    append_apart(log, 30)
    first = disk.open(f"{DIRECTORY}/{0:020d}.log")
    first.truncate(first.size() * 2 // 3)
    recovered = open_log(disk, COMPACTED, clean=False)
    assert recovered.log_end_offset == 11
    assert any("set aside" in note for note in recovered.recovery_notes)


def test_segments_of_a_compacted_log_join_where_what_is_copied_begins_later() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    append_apart(log, *range(0, 100, 10))
    assert len(list(log.segments)) > 3
    expected = read_everything(log)
    recovered = open_log(disk, COMPACTED, clean=False)
    assert recovered.log_end_offset == 91
    assert read_everything(recovered) == expected
    assert recovered.recovery_notes == ()


@pytest.mark.parametrize(("recovery_point", "next_offset"), [(0, 2**31 + 100), (100, 100)])
def test_a_hole_in_a_compacted_log_that_no_power_cut_can_have_left_is_meant(
    recovery_point: int, next_offset: int
) -> None:
    """Offsets may have jumped too far for one segment; and Kafka's compaction leaves holes, in what was synced."""
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    append_apart(log, 0)
    log.roll(NOW_MS, next_offset)
    append_apart(log, next_offset)
    recovered = open_log(disk, COMPACTED, clean=False, recovery_point=recovery_point)
    assert recovered.log_end_offset == next_offset + 1
    assert recovered.recovery_notes == ()


def append_apart(log: Log, *offsets: int) -> None:
    """As a follower of a leader whose log was compacted."""
    for offset in offsets:
        log.append_as_follower(bytes(make_batch(base_offset=offset)), NOW_MS)


def append_aborted(log: Log, producer_id: int) -> None:
    append(log, make_batch(producer=(producer_id, 0, 0), transactional=True))
    append(log, make_marker(producer_id, 0, abort=True))


def test_what_a_power_cut_left_of_a_segment_that_it_took_is_of_no_other_one() -> None:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    # The files of a segment are gone or there each by itself, and may be torn.
    for suffix in (".txnindex", ".snapshot"):
        disk.open(f"{DIRECTORY}/{500:020d}{suffix}").append(bytes(20))
    disk.open(f"{DIRECTORY}/{0:020d}.txnindex").append(bytes(20))
    log = open_log(disk, clean=False)
    append_aborted(log, 7)
    assert [one.producer_id for one in log.aborted_transactions(0, 2)] == [7]
    log.close()
    assert open_log(disk).log_end_offset == 2


def test_a_new_segment_does_not_begin_with_the_aborted_transactions_of_one_that_was_there() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, make_batch())
    disk.open(f"{DIRECTORY}/{1:020d}.txnindex").append(bytes(20))
    log.roll(NOW_MS)
    append_aborted(log, 7)
    assert [one.producer_id for one in log.aborted_transactions(0, 3)] == [7]


def sync(log: Log) -> None:
    flush = log.flush()
    for file in flush.files:
        file.sync()
    log.mark_flushed(flush)


def sealed_when_synced(disk: SimDisk) -> Log:
    """A log with an aborted transaction in a segment that was sealed when every record of it was on the disk."""
    log = open_log(disk)
    append_aborted(log, 7)
    sync(log)
    log.roll(NOW_MS)
    append(log, make_batch())
    return log


def test_aborted_transactions_of_a_sealed_segment_outlive_a_power_cut() -> None:
    disk = SimDisk()
    sync(sealed_when_synced(disk))
    disk.crash(lambda path, unsynced: 0)
    recovered = open_log(disk, clean=False, recovery_point=3)
    assert recovered.log_end_offset == 3
    assert [one.producer_id for one in recovered.aborted_transactions(0, 3)] == [7]


def test_aborted_transactions_of_a_segment_that_was_just_sealed_are_found_anew() -> None:
    disk = SimDisk()
    sealed_when_synced(disk)
    disk.crash(lambda path, unsynced: unsynced if path.endswith(".log") else 0)
    recovered = open_log(disk, clean=False, recovery_point=2)
    assert [one.producer_id for one in recovered.aborted_transactions(0, 3)] == [7]


@pytest.mark.parametrize(
    ("recovery_point", "log_start_offset", "may_lack_beginning"), [(0, 0, True), (0, 3, False), (3, 0, False)]
)
def test_a_log_knows_that_a_power_cut_may_have_taken_its_first_segment(
    recovery_point: int, log_start_offset: int, may_lack_beginning: bool
) -> None:
    """A name that was never synced may be gone, though that of a later file is there."""
    disk = SimDisk()
    log = open_log(disk, LogConfig(segment_bytes=3 * len(make_batch())))
    for _ in range(6):
        append(log, make_batch())
    disk.remove(f"{DIRECTORY}/{0:020d}.log")
    log = open_log(disk, clean=False, recovery_point=recovery_point, log_start_offset=log_start_offset)
    assert (log.log_start_offset, log.log_end_offset) == (3, 6)
    assert log.may_lack_beginning is may_lack_beginning
