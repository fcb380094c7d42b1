"""Bits that changed on the disk after they were written: what a log does when it comes across them."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.broker.log_reader import read_batches
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.made import DIRECTORY, NOW_MS, append, make_batch, open_log

FIRST_FILE = f"{DIRECTORY}/{0:020d}.log"
LENGTH_POSITION = 8
SIGN_BIT = 7
BATCHES_PER_SEGMENT = 3


def rotten_log(disk: SimDisk) -> tuple[Log, int]:
    """Two segments; and how many bytes each batch has."""
    batch_bytes = len(make_batch())
    log = open_log(disk, LogConfig(segment_bytes=BATCHES_PER_SEGMENT * batch_bytes))
    for _ in range(2 * BATCHES_PER_SEGMENT):
        append(log, make_batch())
    return log, batch_bytes


def test_a_length_that_leads_beyond_the_segment_does_not_hide_the_batches_after_it() -> None:
    disk = SimDisk()
    log, batch_bytes = rotten_log(disk)
    disk.flip_bit(FIRST_FILE, batch_bytes + LENGTH_POSITION)
    with pytest.raises(Refused) as refused:
        log.read(2, 1, log.log_end_offset)
    assert refused.value.code is ErrorCode.corrupt_message
    assert log.read(BATCHES_PER_SEGMENT, 1, log.log_end_offset) is not None


@pytest.mark.parametrize(("position", "bit"), [(23, SIGN_BIT), (7, 0)], ids=["last offset", "base offset"])
def test_a_batch_whose_offsets_have_rotted_is_not_passed_over(position: int, bit: int) -> None:
    """A follower would take the batch after it, and never have this one."""
    disk = SimDisk()
    log, batch_bytes = rotten_log(disk)
    disk.flip_bit(FIRST_FILE, batch_bytes + position, bit)
    with pytest.raises(Refused) as refused:
        log.read(1, 1, log.log_end_offset)
    assert refused.value.code is ErrorCode.corrupt_message


def test_a_batch_that_seems_to_reach_beyond_what_may_be_read_is_damaged() -> None:
    """Whoever asks for it must not wait for it in vain."""
    disk = SimDisk()
    log, batch_bytes = rotten_log(disk)
    assert log.read(1, 1, 2) is not None
    disk.flip_bit(FIRST_FILE, batch_bytes + 24, 3)
    with pytest.raises(Refused) as refused:
        log.read(1, 1, 2)
    assert refused.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("position", [LENGTH_POSITION, 16, 70], ids=["length", "magic", "record"])
def test_who_reads_a_whole_log_stops_at_what_is_damaged(position: int) -> None:
    disk = SimDisk()
    log, batch_bytes = rotten_log(disk)
    disk.flip_bit(FIRST_FILE, batch_bytes + position)
    batches = read_batches(log)
    assert next(batches)[0].base_offset == 0
    with pytest.raises(Refused) as refused:
        next(batches)
    assert refused.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("bit", [SIGN_BIT, 0], ids=["negative length", "beyond the end"])
def test_a_log_that_was_closed_cleanly_and_is_damaged_cannot_be_used(bit: int) -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(3):
        append(log, make_batch())
    log.close()
    disk.flip_bit(FIRST_FILE, len(make_batch()) + LENGTH_POSITION, bit)
    with pytest.raises(DiskError):
        open_log(disk)


@pytest.mark.parametrize("position", [43, 53, 70], ids=["producer", "sequence", "record"])
def test_who_wrote_what_is_not_learned_from_a_damaged_batch(position: int) -> None:
    disk = SimDisk()
    log = open_log(disk)
    for sequence in range(3):
        append(log, make_batch(producer=(0, 0, sequence)))
    log.close()
    disk.flip_bit(FIRST_FILE, len(make_batch()) + position)
    with pytest.raises(DiskError):
        open_log(disk)


def test_a_log_is_not_cut_at_a_batch_that_seems_to_reach_further_than_it_does() -> None:
    """What is between it and the place of the cut would be gone, and nobody would miss it."""
    disk = SimDisk()
    batch_bytes = len(make_batch())
    log = open_log(disk)
    for _ in range(6):
        append(log, make_batch())
    disk.flip_bit(FIRST_FILE, batch_bytes + 26, 4)
    with pytest.raises(DiskError, match=f"no valid batch at byte {batch_bytes}"):
        log.truncate_to(5, NOW_MS)
    assert len(disk.read_file(FIRST_FILE)) == 6 * batch_bytes


def test_a_damaged_log_that_is_to_be_cut_fails_as_its_disk_does() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(3):
        append(log, make_batch())
    disk.flip_bit(FIRST_FILE, LENGTH_POSITION)
    with pytest.raises(DiskError):
        log.truncate_to(2, NOW_MS)
