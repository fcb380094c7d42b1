"""The quorum's log on a disk does what the one in memory does, also after a power cut."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ports import DiskError
from penstock.cluster.raft import VoteState
from penstock.cluster.raft.control_records import snapshot_closing, snapshot_opening
from penstock.cluster.raft.log import Validity, truncation_offset, validate_fetch
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.stored_log import (
    DIRECTORY,
    StoredRaftLog,
    format_quorum_state,
    parse_quorum_state,
)
from penstock.cluster.raft.voters import VoterSet
from penstock.log.config import LogConfig
from penstock.testing.sim_disk import SimDisk
from tests.unit.raft.cluster import batch_of, voter
from tests.unit.raft.memory_log import MemoryLog

NOW_MS = 1_000_000
SMALL_SEGMENTS = LogConfig(segment_bytes=400)


def opened(disk: SimDisk, *, clean: bool = False) -> StoredRaftLog:
    return StoredRaftLog(disk, clean=clean, now_ms=NOW_MS, config=SMALL_SEGMENTS)


def sync(log: StoredRaftLog) -> None:
    flushed = log.flush()
    for file in flushed.flush.files:
        file.sync()
    log.mark_flushed(flushed)


def snapshot_bytes(snapshot_id: OffsetAndEpoch) -> bytes:
    voters = VoterSet([voter(1), voter(2)])
    return bytes(snapshot_opening(0, voters, 1, snapshot_id.epoch, 0) + snapshot_closing(3, snapshot_id.epoch, 0))


class Pair:
    """Both logs, and the epoch that is being written."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.stored = opened(self.disk)
        self.memory = MemoryLog()
        self.epoch = 1
        self.value = 0

    def append(self, size: int) -> None:
        self.value += 1
        value = f"{self.value}".encode() * size
        assert self.stored.append(batch_of(value), self.epoch, NOW_MS) == self.memory.append(
            batch_of(value), self.epoch, NOW_MS
        )

    def next_epoch(self, by: int) -> None:
        self.epoch += by

    def truncate(self, back: int) -> None:
        offset = max(self.memory.start_offset, self.memory.end_offset - back)
        self.stored.truncate(offset, NOW_MS)
        self.memory.truncate(offset, NOW_MS)

    def snapshot(self, back: int) -> None:
        offset = self.memory.end_offset - back
        if offset <= self.memory.start_offset:
            return
        snapshot_id = OffsetAndEpoch(offset, self.memory.epoch_for_offset(offset - 1))
        for log in (self.stored, self.memory):
            log.write_snapshot(snapshot_id, snapshot_bytes(snapshot_id))
            log.trim_to(snapshot_id)

    def install(self, beyond: int) -> None:
        self.epoch += 1
        snapshot_id = OffsetAndEpoch(self.memory.end_offset + beyond, self.epoch)
        data = snapshot_bytes(snapshot_id)
        for log in (self.stored, self.memory):
            log.receive_snapshot(snapshot_id, 0, data[:50])
            log.receive_snapshot(snapshot_id, 50, data[50:])
        self.stored.received_file(snapshot_id).sync()
        for log in (self.stored, self.memory):
            assert log.received_snapshot(snapshot_id) == data
            log.install_snapshot(snapshot_id, NOW_MS)

    def power_cut(self, synced: int) -> None:
        if synced:
            sync(self.stored)
        self.disk.crash((lambda path, unsynced: unsynced) if not synced else None)
        self.stored = opened(self.disk)
        earliest = self.stored.earliest_snapshot()
        if earliest is not None:
            # A start within a segment is not on the disk: after a restart the log begins where its segment does.
            self.stored.trim_to(earliest)

    def check(self) -> None:
        stored, memory = self.stored, self.memory
        assert (stored.end_offset, stored.last_epoch) == (memory.end_offset, memory.last_epoch)
        assert stored.latest_snapshot() == memory.latest_snapshot()
        assert stored.earliest_snapshot() == memory.earliest_snapshot()
        for epoch in range(1, self.epoch + 2):
            assert stored.end_offset_for_epoch(epoch) == memory.end_offset_for_epoch(epoch), epoch
        offset = memory.start_offset
        while offset < memory.end_offset:
            data = stored.read(offset, 1)
            assert data == memory.read(offset, 1)
            entry = memory.entry_at(offset)
            assert entry is not None
            assert stored.epoch_for_offset(offset) == entry.epoch
            offset = entry.end_offset


ACTIONS: list[Callable[[Pair, int], None]] = [
    Pair.append,
    Pair.append,
    Pair.append,
    Pair.next_epoch,
    Pair.truncate,
    Pair.snapshot,
    Pair.install,
    Pair.power_cut,
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 6)), max_size=25))
def test_the_log_on_a_disk_is_the_log_in_memory(steps: list[tuple[Callable[[Pair, int], None], int]]) -> None:
    pair = Pair()
    pair.append(1)
    for action, number in steps:
        action(pair, number if action is not Pair.append else number + 1)
        pair.check()


def test_a_follower_takes_over_what_a_leader_reads_out() -> None:
    leader, follower = opened(SimDisk()), opened(SimDisk())
    for epoch in (1, 1, 3):
        leader.append(batch_of(b"value" * epoch), epoch, NOW_MS)
    while follower.end_offset < leader.end_offset:
        follower.append_as_follower(leader.read(follower.end_offset, 1 << 20), NOW_MS)
    assert follower.last_epoch == 3
    assert follower.end_offset_for_epoch(2) == OffsetAndEpoch(2, 1)


def test_a_flush_from_before_a_truncation_does_not_count() -> None:
    log = opened(SimDisk())
    log.append(batch_of(b"a"), 1, NOW_MS)
    log.append(batch_of(b"b"), 1, NOW_MS)
    flushed = log.flush()
    log.truncate(1, NOW_MS)
    log.append(batch_of(b"c"), 2, NOW_MS)
    log.mark_flushed(flushed)
    assert log.synced_offset == 0
    sync(log)
    assert log.synced_offset == 2


def test_a_snapshot_that_came_just_before_the_power_went_is_where_the_log_goes_on() -> None:
    disk = SimDisk()
    log = opened(disk)
    log.append(batch_of(b"old"), 1, NOW_MS)
    sync(log)
    snapshot_id = OffsetAndEpoch(50, 4)
    log.receive_snapshot(snapshot_id, 0, snapshot_bytes(snapshot_id))
    log.received_file(snapshot_id).sync()
    disk.rename(f"{DIRECTORY}/{50:020d}-{4:010d}.checkpoint.part", f"{DIRECTORY}/{50:020d}-{4:010d}.checkpoint")
    disk.crash()
    log = opened(disk)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (50, 50, 4)


def test_a_log_that_was_trimmed_keeps_more_after_a_restart_and_serves_it() -> None:
    disk = SimDisk()
    log = opened(disk)
    for epoch in (1, 1, 2):
        log.append(batch_of(b"value"), epoch, NOW_MS)
    snapshot_id = OffsetAndEpoch(2, 1)
    log.write_snapshot(snapshot_id, snapshot_bytes(snapshot_id))
    log.trim_to(snapshot_id)
    sync(log)
    disk.crash()
    again = opened(disk)
    assert (again.start_offset, again.end_offset) == (0, 3)
    assert validate_fetch(again, 1, 1) == Validity()
    assert again.read(1, 1)


def test_epochs_written_before_a_truncation_do_not_come_back_after_a_power_cut() -> None:
    disk = SimDisk()
    log = opened(disk)
    for epoch in (1, 1, 1, 7, 7):
        log.append(batch_of(b"value" * 20), epoch, NOW_MS)
    sync(log)
    assert disk.exists(f"{DIRECTORY}/leader-epoch-checkpoint")
    log.truncate(0, NOW_MS)
    log.append(batch_of(b"other"), 7, NOW_MS)
    sync(log)
    disk.crash()
    again = opened(disk)
    assert (again.end_offset, again.last_epoch) == (1, 7)
    assert again.end_offset_for_epoch(7) == OffsetAndEpoch(1, 7)


def test_a_clean_stop_forgets_nothing() -> None:
    disk = SimDisk()
    log = opened(disk)
    for epoch in (1, 2):
        log.append(batch_of(b"value"), epoch, NOW_MS)
    log.close()
    disk.sync_all()
    again = opened(disk, clean=True)
    assert (again.end_offset, again.last_epoch, again.synced_offset) == (2, 2, 2)


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, Validity()),
        (3, 1, Validity()),
        (4, 1, Validity(diverging=OffsetAndEpoch(3, 1))),
        (5, 2, Validity(diverging=OffsetAndEpoch(3, 1))),
        (5, 3, Validity()),
        (6, 3, Validity(diverging=OffsetAndEpoch(5, 3))),
        (5, 4, Validity(diverging=OffsetAndEpoch(5, 3))),
    ],
)
def test_a_fetch_is_valid_where_the_logs_agree(offset: int, epoch: int, expected: Validity) -> None:
    """KIP-595: epoch 1 ends at 3, epoch 3 at 5."""
    for log in (opened(SimDisk()), MemoryLog()):
        for one in (1, 1, 1, 3, 3):
            log.append(batch_of(b"value"), one, NOW_MS)
        assert validate_fetch(log, offset, epoch) == expected


def test_a_fetch_of_what_is_gone_is_answered_with_the_snapshot() -> None:
    for log in (opened(SimDisk()), MemoryLog()):
        for epoch in (1, 1, 2, 2, 2):
            log.append(batch_of(b"value"), epoch, NOW_MS)
        snapshot_id = OffsetAndEpoch(4, 2)
        log.write_snapshot(snapshot_id, snapshot_bytes(snapshot_id))
        log.trim_to(snapshot_id)
        taken = Validity(snapshot_id=snapshot_id)
        assert [validate_fetch(log, *end) for end in [(0, 0), (2, 1), (3, 2), (4, 1), (9, 1)]] == [taken] * 5
        assert validate_fetch(log, 4, 2) == Validity()
        assert validate_fetch(log, 5, 2) == Validity()


def test_a_follower_cuts_where_its_own_epochs_and_the_leaders_part() -> None:
    log = MemoryLog()
    for epoch in (1, 1, 2, 2, 4):
        log.append(batch_of(b"value"), epoch, NOW_MS)
    assert truncation_offset(log, OffsetAndEpoch(3, 2)) == 3
    assert truncation_offset(log, OffsetAndEpoch(9, 2)) == 4
    assert truncation_offset(log, OffsetAndEpoch(9, 3)) == 4
    assert truncation_offset(log, OffsetAndEpoch(0, 0)) == 0


@pytest.mark.parametrize(
    "state", [VoteState(), VoteState(7, 2), VoteState(7, 2, 3, UUID(int=99)), VoteState(9, -1, 1, None)]
)
def test_a_vote_survives_on_the_disk(state: VoteState) -> None:
    assert parse_quorum_state(format_quorum_state(state)) == state


def test_a_vote_of_apache_kafka_is_read() -> None:
    version_0 = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert parse_quorum_state(version_0) == VoteState(2, 1)
    version_1 = (
        b'{"leaderId":-1,"leaderEpoch":5,"votedId":3,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAYw","data_version":1}'
    )
    assert parse_quorum_state(version_1) == VoteState(5, -1, 3, UUID(int=99))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"leaderEpoch":"x"}', b'{"leaderEpoch":1,"votedDirectoryId":"!"}']
)
def test_a_vote_that_cannot_be_read_is_not_taken_for_none(data: bytes) -> None:
    with pytest.raises(DiskError):
        parse_quorum_state(data)


@pytest.mark.parametrize("place", ["base offset", "records"])
def test_a_damaged_batch_is_said_and_does_not_seem_to_be_the_end(place: str) -> None:
    disk = SimDisk()
    log = opened(disk)
    size = len(batch_of(b"one"))
    for value in (b"one", b"two"):
        log.append(batch_of(value), 1, NOW_MS)
    log.close()
    disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", size + {"base offset": 6, "records": size - 2}[place])

    log = opened(disk, clean=True)
    assert len(log.read(0, 10_000)) == size
    with pytest.raises(DiskError, match="offset 1 is damaged"):
        log.read(1, 10_000)


def test_a_length_that_is_damaged_while_it_is_open_is_said() -> None:
    disk = SimDisk()
    log = opened(disk)
    for value in (b"one", b"two"):
        log.append(batch_of(value), 1, NOW_MS)
    disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", 8)
    with pytest.raises(DiskError, match="offset 0 is damaged"):
        log.read(0, 10_000)
