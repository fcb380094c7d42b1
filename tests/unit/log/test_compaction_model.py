"""Random logs, compacted again and again and cut short anywhere, against a model of what a reader must find.

The model is a list of records. What Kafka promises of a compacted log, and reliability asks for: the last value of each
key is there, at its offset, and nothing that was never written; a tombstone is there until its time is over, and what
it deletes never comes back; aborted records are never committed ones; the end of the log stays where it is.
"""

from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.base.ports import DiskError
from penstock.log.log import Log
from penstock.protocol.batch import TRANSACTIONAL
from penstock.protocol.records import Record, build_batch
from penstock.testing.compaction_checker import CompactionChecker
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.compacted import COMPACTED, compact, headers_in, pairs_in
from tests.unit.log.made import (
    DIRECTORY,
    NOW_MS,
    append,
    complaints_about_indexes,
    make_marker,
    open_log,
    read_everything,
)

KEYS = [b"a", b"b", b"c", b"d", b"e", None]


@dataclass
class Put:
    """One batch: of no producer, of an idempotent one, or of a transaction that ends at once."""

    keys: list[tuple[bytes | None, bool]]  # key, and whether it is a tombstone
    codec: int = 0
    kind: str = "plain"
    is_rolled: bool = False


puts = st.builds(
    Put,
    st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=6),
    st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    st.sampled_from(["plain", "plain", "idempotent", "committed", "aborted"]),
    st.booleans(),
)


class PowerCut(DiskError):
    """Nothing after this is done."""


class CountedDisk(SimDisk):
    """Loses power before the operation with a given number, counted from when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.operations_left: int | None = None

    def act(self, operation: str, path: str) -> None:
        super().act(operation, path)
        if self.operations_left is not None and operation != "read":
            if self.operations_left == 0:
                raise PowerCut(f"before {operation} of {path}")
            self.operations_left -= 1


class Model:
    def __init__(self) -> None:
        self.checker = CompactionChecker()
        self.aborted: set[int] = set()
        self.sequences = {7: 0, 8: 0}

    def put(self, log: Log, put: Put) -> None:
        base_offset = log.log_end_offset
        pairs = [(key, None if gone else b"%d" % (base_offset + delta)) for delta, (key, gone) in enumerate(put.keys)]
        records = [Record(delta, NOW_MS + delta, *pair) for delta, pair in enumerate(pairs)]
        if put.kind == "plain":
            append(log, build_batch(records, codec=put.codec))
        else:
            producer_id = 7 if put.kind == "idempotent" else 8
            append(
                log,
                build_batch(
                    records,
                    codec=put.codec,
                    attributes=TRANSACTIONAL if producer_id == 8 else 0,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=self.sequences[producer_id],
                ),
            )
            self.sequences[producer_id] += len(records)
        marker_offset = None
        if put.kind in ("committed", "aborted"):
            marker_offset = append(log, make_marker(8, 0, abort=put.kind == "aborted"))
        for offset, (key, value) in enumerate(pairs, base_offset):
            is_aborted = put.kind == "aborted"
            self.checker.wrote(offset, key, value, is_aborted=is_aborted, marker_offset=marker_offset)
            if is_aborted:
                self.aborted.add(offset)
        if put.is_rolled:
            log.roll(NOW_MS)

    def check(self, log: Log, end_offset: int, *, tombstones_may_be_gone: bool) -> None:
        assert log.log_end_offset == end_offset
        self.checker.check(read_everything(log), tombstones_may_be_gone=tombstones_may_be_gone)
        # Readers of committed records are told to skip what is still there of aborted transactions.
        told = log.aborted_transactions(0, end_offset)
        for offset in self.aborted & set(pairs_in(log)):
            assert any(one.first_offset <= offset <= one.last_offset for one in told)

    def check_producers(self, log: Log) -> None:
        """A restarted log knows what comes next of each producer."""
        for producer_id, sequence in self.sequences.items():
            if sequence:
                assert log.producers.producers[producer_id].batches[-1].last_sequence == sequence - 1


@settings(max_examples=150, deadline=None)
# A record without a key is the first that the map has no room for.
@example(rounds=[[Put([(b"a", False)] * 37 + [(None, False)], 0, "plain", False)]], memory_bytes=300, step_ms=0)
@given(
    rounds=st.lists(st.lists(puts, min_size=1, max_size=8), min_size=1, max_size=4),
    memory_bytes=st.sampled_from([300, 700, 1 << 16]),
    step_ms=st.sampled_from([0, 600, 2000]),
)
def test_a_compacted_log_holds_the_last_of_each_key_and_nothing_that_was_deleted(
    rounds: list[list[Put]], memory_bytes: int, step_ms: int
) -> None:
    disk, model = SimDisk(), Model()
    log = open_log(disk, COMPACTED)
    checkpoint, now_ms = 0, NOW_MS
    for batch_puts in rounds:
        for put in batch_puts:
            model.put(log, put)
        log.roll(NOW_MS)
        end_offset = log.log_end_offset
        while checkpoint < end_offset:
            done = compact(disk, log, checkpoint, now_ms, memory_bytes)
            assert done.end_offset > checkpoint
            checkpoint = done.end_offset
            model.check(log, end_offset, tombstones_may_be_gone=step_ms > 0)
            now_ms += step_ms
        # All is compacted: of each key there is one, and nothing of aborted transactions.
        found = pairs_in(log)
        assert len({key for key, _ in found.values()}) == len(found)
        assert not model.aborted & set(found)
        for header in headers_in(log):
            assert header.record_count <= header.last_offset_delta + 1
    log.close()
    assert complaints_about_indexes(disk) == []
    log = open_log(disk, COMPACTED)
    model.check(log, end_offset, tombstones_may_be_gone=step_ms > 0)
    model.check_producers(log)
    log = open_log(disk, COMPACTED, clean=False)
    model.check(log, end_offset, tombstones_may_be_gone=step_ms > 0)
    model.check_producers(log)


def filled(disk: SimDisk, seed: int) -> tuple[Log, Model]:
    """A log with everything in it, part of it compacted before."""
    model = Model()
    log = open_log(disk, COMPACTED)
    kinds = ["plain", "idempotent", "committed", "aborted"]
    for number in range(60):
        mixed = number * 7919 + seed
        keys = [(KEYS[(mixed >> delta) % 6], (mixed + delta) % 5 == 0) for delta in range(3)]
        model.put(log, Put(keys, codec=mixed % 5, kind=kinds[mixed % 4], is_rolled=number % 9 == 0))
        if number == 30:
            log.roll(NOW_MS)
            compact(disk, log, 0)
    log.roll(NOW_MS)
    for path in [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".deleted")]:
        disk.remove(path)
    disk.sync_all()
    return log, model


def compact_and_remove(disk: SimDisk, log: Log) -> None:
    for path in compact(disk, log, 0).doomed:
        disk.remove(path)


def operations_of_a_pass(seed: int) -> int:
    disk = CountedDisk()
    log, _ = filled(disk, seed)
    disk.operations_left = 1 << 30
    compact_and_remove(disk, log)
    return (1 << 30) - disk.operations_left


@pytest.mark.slow
@pytest.mark.parametrize("survives", [0.0, 0.5, 1.0])
def test_a_power_cut_before_any_operation_of_a_pass_leaves_the_old_or_the_new_segments(survives: float) -> None:
    seed = 3
    count = operations_of_a_pass(seed)
    assert count > 50
    for number in range(count):
        disk = CountedDisk()
        log, model = filled(disk, seed)
        end_offset = log.log_end_offset
        before = pairs_in(log)
        disk.operations_left = number
        with pytest.raises(PowerCut):
            compact_and_remove(disk, log)
        disk.operations_left = None
        disk.crash(lambda path, unsynced: int(survives * unsynced))
        log = open_log(disk, COMPACTED, clean=False, recovery_point=end_offset)
        names = disk.list(DIRECTORY)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted", ".corrupt"))]
        model.check(log, end_offset, tombstones_may_be_gone=False)
        model.check_producers(log)
        assert set(pairs_in(log)) <= set(before)
        # The next pass finds nothing in its way, and ends as if nothing had happened.
        log.roll(NOW_MS)
        compact(disk, log, 0)
        found = pairs_in(log)
        assert len({key for key, _ in found.values()}) == len(found)
        model.check(log, end_offset, tombstones_may_be_gone=False)
        log.close()
        assert complaints_about_indexes(disk) == []
