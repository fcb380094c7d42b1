"""What is due: whole segments, oldest first, by age and by size, and nothing that is not replicated yet."""

import pytest

from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.retention import NEVER_MS, drop_what_is_due, due_ms, start_offset_due
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.made import DIRECTORY, NOW_MS, append, make_batch, open_log

HOUR_MS = 3_600_000


def aged(disk: SimDisk, config: LogConfig, ages_hours: list[int], value_bytes: int = 10) -> Log:
    """A segment with one record of each age, the last one active."""
    log = open_log(disk, config)
    for number, age in enumerate(ages_hours):
        if number:
            log.roll(NOW_MS)
        append(log, make_batch([NOW_MS - age * HOUR_MS], value_bytes))
    return log


@pytest.mark.parametrize(
    ("ages", "hours", "expected"),
    [
        ([9, 8, 7, 1], 10, 0),
        ([9, 8, 7, 1], 9, 0),
        ([9, 8, 7, 1], 8, 1),
        ([9, 8, 7, 1], 2, 3),
        ([9, 8, 7, 1], 0, 4),
        # One that is young enough keeps those after it.
        ([9, 1, 7, 7], 2, 1),
        ([9], 2, 1),
    ],
)
def test_by_age(ages: list[int], hours: int, expected: int) -> None:
    log = aged(SimDisk(), LogConfig(retention_ms=hours * HOUR_MS), ages)
    drop_what_is_due(log, log.log_end_offset, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (expected, len(ages))
    assert log.segments.first.base_offset == expected
    append(log, make_batch())
    assert log.log_end_offset == len(ages) + 1


def test_by_size_and_age_together() -> None:
    config = LogConfig(retention_ms=5 * HOUR_MS, retention_bytes=3 * 81)
    log = aged(SimDisk(), config, [1, 1, 9, 1, 1, 1])
    assert [segment.size for segment in log.segments] == [81] * 6
    # Size takes the first three, of which the last is too old as well.
    assert start_offset_due(log.segments, config, 6, 6, NOW_MS) == 3
    log = aged(SimDisk(), config, [1, 9, 9, 9, 1, 1])
    assert start_offset_due(log.segments, config, 6, 6, NOW_MS) == 4


def test_nothing_beyond_the_high_watermark_goes() -> None:
    log = aged(SimDisk(), LogConfig(retention_ms=0), [9, 9, 9])
    drop_what_is_due(log, 2, NOW_MS)
    assert log.log_start_offset == 2


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(retention_ms=0, cleanup_policy=("compact",)),
        LogConfig(retention_ms=0, cleanup_policy=()),
        LogConfig(retention_ms=-1),
    ],
)
def test_what_is_not_to_be_deleted_stays(config: LogConfig) -> None:
    disk = SimDisk()
    log = aged(disk, config, [9, 9, 9])
    assert drop_what_is_due(log, 3, NOW_MS) == []
    log.close()
    assert due_ms(disk, DIRECTORY, config) == NEVER_MS


def test_compaction_and_deletion_go_together() -> None:
    log = aged(SimDisk(), LogConfig(retention_ms=HOUR_MS, cleanup_policy=("compact", "delete")), [9, 9, 1])
    drop_what_is_due(log, 3, NOW_MS)
    assert log.log_start_offset == 2


def test_records_without_a_time_are_as_old_as_their_file() -> None:
    disk = SimDisk()
    config = LogConfig(retention_ms=HOUR_MS)
    disk.now_ms = NOW_MS
    log = open_log(disk, config)
    append(log, make_batch([-1]))
    log.roll(NOW_MS)
    append(log, make_batch([-1]))
    drop_what_is_due(log, 2, NOW_MS + HOUR_MS)
    assert log.log_start_offset == 0
    drop_what_is_due(log, 2, NOW_MS + HOUR_MS + 1)
    assert log.log_start_offset == 2


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_segment_that_was_emptied_by_hand_goes_once_it_is_not_active(policy: str) -> None:
    config = LogConfig(retention_ms=HOUR_MS, cleanup_policy=(policy,))
    log = aged(SimDisk(), config, [0])
    append(log, make_batch())
    assert log.advance_log_start(2) == []
    assert drop_what_is_due(log, 2, NOW_MS) == []
    log.roll(NOW_MS)
    assert drop_what_is_due(log, 2, NOW_MS) != []
    assert (log.segments.count, log.log_start_offset, log.log_end_offset) == (1, 2, 2)


def test_a_log_that_was_emptied_by_hand_gives_its_segment_up_when_that_is_too_old() -> None:
    log = aged(SimDisk(), LogConfig(retention_ms=HOUR_MS), [2, 2])
    log.advance_log_start(2)
    assert drop_what_is_due(log, 2, NOW_MS) != []
    assert drop_what_is_due(log, 2, NOW_MS) == []
    assert (log.segments.count, log.log_start_offset, log.log_end_offset) == (1, 2, 2)


def test_an_empty_log_stays_as_it_is() -> None:
    disk = SimDisk()
    log = open_log(disk, LogConfig(retention_ms=0, retention_bytes=0))
    assert drop_what_is_due(log, 0, NOW_MS) == []
    assert due_ms(disk, DIRECTORY, log.config) == NEVER_MS


@pytest.mark.parametrize("ages", [[9], [9, 8], [3, 9, 1]])
def test_files_alone_tell_when_the_first_segment_is_due(ages: list[int]) -> None:
    disk = SimDisk()
    config = LogConfig(retention_ms=10 * HOUR_MS)
    log = aged(disk, config, ages)
    log.close()
    due = due_ms(disk, DIRECTORY, config)
    assert due == NOW_MS + (10 - ages[0]) * HOUR_MS + 1
    log = open_log(disk, config)
    assert drop_what_is_due(log, len(ages), due - 1) == []
    assert drop_what_is_due(log, len(ages), due) != []


def test_files_alone_tell_that_there_is_too_much() -> None:
    disk = SimDisk()
    config = LogConfig(retention_ms=-1, retention_bytes=2 * 81)
    log = aged(disk, config, [1, 1])
    log.close()
    assert due_ms(disk, DIRECTORY, config) == NEVER_MS
    log = open_log(disk, config)
    log.roll(NOW_MS)
    append(log, make_batch())
    log.close()
    assert due_ms(disk, DIRECTORY, config) == 0


def test_what_was_not_removed_before_a_stop_is_due() -> None:
    disk = SimDisk()
    config = LogConfig(retention_ms=2 * HOUR_MS)
    log = aged(disk, config, [9, 1])
    drop_what_is_due(log, 2, NOW_MS)
    log.close()
    assert due_ms(disk, DIRECTORY, config) == 0
    open_log(disk, config)
    assert due_ms(disk, DIRECTORY, config) > NOW_MS
