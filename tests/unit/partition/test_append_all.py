"""Batches that are appended together end as if they had come one by one."""

from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.log.config import LogConfig
from penstock.protocol.batch import TRANSACTIONAL
from penstock.protocol.produce import spelt_out
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk
from tests.unit.partition.made import NOW_MS, make_partition

VERSION = 12
# Small enough for segments and indexes to get full between the batches of a run.
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150, segment_index_bytes=60, segment_ms=1_000_000)


def batch(records: int = 1, *, timestamp: int = NOW_MS, value_bytes: int = 10, **fields: Any) -> bytearray:
    return build_batch([Record(i, timestamp, b"k", bytes(value_bytes)) for i in range(records)], **fields)


def damaged(data: bytearray, position: int) -> bytearray:
    data[position % len(data)] ^= 1
    return data


plain = st.builds(
    batch,
    st.integers(1, 3),
    timestamp=st.sampled_from([NOW_MS, NOW_MS - 5, NOW_MS + 5, NOW_MS + 2_000_000, NOW_MS + 10**9]),
    value_bytes=st.integers(0, 200),
    codec=st.sampled_from([0, 0, 0, 1, 3]),
)
idempotent = st.builds(
    batch,
    st.integers(1, 2),
    producer_id=st.sampled_from([5, 5, 5, 6]),
    producer_epoch=st.sampled_from([0, 0, 0, 1]),
    base_sequence=st.integers(0, 6),
)
odd = st.one_of(
    st.builds(batch, attributes=st.just(TRANSACTIONAL)),
    st.builds(bytearray, st.binary(max_size=70)),
    st.builds(damaged, plain, st.integers(0, 300)),
)


def continuing(counts: list[int], first_sequence: int, producer_id: int = 5) -> list[bytearray]:
    """As a producer sends them that has several requests on their way."""
    run = []
    for count in counts:
        run.append(batch(count, producer_id=producer_id, producer_epoch=0, base_sequence=first_sequence))
        first_sequence += count
    return run


def interleaved(*of_producers: list[bytearray]) -> list[bytearray]:
    """As several producers send them at a time."""
    return [each for in_turn in zip_longest(*of_producers) for each in in_turn if each is not None]


counts = st.lists(st.integers(1, 3), min_size=1, max_size=4)
first_sequences = st.sampled_from([0, 0, 0, 1, 3])


runs = st.one_of(
    st.lists(plain, min_size=1, max_size=5),
    st.builds(continuing, st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(0, 4)),
    st.builds(
        interleaved,
        st.builds(continuing, counts, first_sequences),
        st.builds(continuing, counts, first_sequences, st.just(6)),
        st.lists(plain, max_size=2),
    ),
    st.lists(st.one_of(plain, idempotent, odd), min_size=1, max_size=5),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(runs, min_size=1, max_size=6), st.sampled_from([SMALL, LogConfig()]), st.sampled_from([1, -1]))
def test_together_or_one_by_one_makes_no_difference(lives: list[list[bytearray]], config: LogConfig, acks: int) -> None:
    disk, other_disk = SimDisk(), SimDisk()
    together, one_by_one = make_partition(disk, config), make_partition(other_disk, config)
    for run in lives:
        again = [bytearray(each) for each in run]
        answers = together.append_all([memoryview(each) for each in run], acks, VERSION, NOW_MS)
        assert spelt_out(answers) == [one_by_one.append(memoryview(each), acks, VERSION, NOW_MS) for each in again]
    for partition in (together, one_by_one):
        partition.log.close()
    assert disk.dump() == other_disk.dump()
    assert (together.messages_in, together.bytes_in, together.produce_requests) == (
        one_by_one.messages_in,
        one_by_one.bytes_in,
        one_by_one.produce_requests,
    )


@pytest.mark.parametrize(
    "run",
    [
        [batch(), batch(), batch()],
        [batch(), *continuing([1, 2], 0)],
        interleaved(continuing([2, 1], 0), continuing([1, 1], 0, 6)),
    ],
    ids=["without producers", "of a producer and of none", "of two producers"],
)
def test_a_run_is_one_write(run: list[bytearray]) -> None:
    disk = SimDisk()
    partition = make_partition(disk)
    partition.append(memoryview(batch()), 1, VERSION, NOW_MS)
    disk.fail("append", ".log")
    answers = partition.append_all([memoryview(each) for each in run], 1, VERSION, NOW_MS)
    assert [answer.error_code for answer in spelt_out(answers)] == [ErrorCode.kafka_storage_error] * len(run)
    assert partition.log.log_end_offset == 1


def test_a_full_disk_refuses_the_whole_run_and_takes_it_when_there_is_space() -> None:
    disk = SimDisk()
    partition = make_partition(disk)
    partition.append(memoryview(batch(producer_id=5, producer_epoch=0, base_sequence=0)), 1, VERSION, NOW_MS)
    disk.capacity_bytes = disk.used_bytes() + 150
    run = continuing([1, 1, 1], 1)
    answers = partition.append_all([memoryview(bytearray(each)) for each in run], 1, VERSION, NOW_MS)
    assert {answer.error_code for answer in spelt_out(answers)} == {ErrorCode.kafka_storage_error}
    disk.capacity_bytes = None
    answers = partition.append_all([memoryview(each) for each in run], 1, VERSION, NOW_MS)
    assert [(answer.error_code, answer.base_offset) for answer in spelt_out(answers)] == [(0, 1), (0, 2), (0, 3)]


def test_whoever_waits_for_records_is_told_once() -> None:
    partition = make_partition(SimDisk())
    partition.append(memoryview(batch()), 1, VERSION, NOW_MS)
    told: list[int] = []
    partition.append_listeners = {told.append: None}
    run = [batch() for _ in range(3)]
    partition.append_all([memoryview(each) for each in run], 1, VERSION, NOW_MS)
    assert told == [sum(map(len, run))]


def test_a_segment_that_begins_with_a_run_is_rolled_by_the_age_of_its_first_batch() -> None:
    disk, other_disk = SimDisk(), SimDisk()
    together, one_by_one = make_partition(disk, SMALL), make_partition(other_disk, SMALL)
    run = [batch(), batch()]
    late = batch(timestamp=NOW_MS + SMALL.roll_ms + 1)
    for partition in (together, one_by_one):
        partition.append(memoryview(batch()), 1, VERSION, NOW_MS)
        partition.log.roll_to_empty(NOW_MS)
    for each in run:
        one_by_one.append(memoryview(bytearray(each)), 1, VERSION, NOW_MS)
    together.append_all([memoryview(each) for each in run], 1, VERSION, NOW_MS)
    for partition in (together, one_by_one):
        partition.append(memoryview(bytearray(late)), 1, VERSION, NOW_MS)
        partition.log.close()
    assert disk.exists("t-0/00000000000000000003.log")
    assert disk.dump() == other_disk.dump()
