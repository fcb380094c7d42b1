"""Offset and time index: the same answers from memory, from the file, and from looking at every entry."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.index import (
    OffsetIndex,
    TimeIndex,
    last_time_entry,
    offset_index_is_sound,
    search_offset_index,
    search_time_index,
    time_index_is_sound,
)
from penstock.testing.sim_disk import SimDisk, SimFile

BASE = 1 << 40

rising = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=40).map(sorted)


def file_with(data: bytes) -> SimFile:
    disk = SimDisk()
    disk.open("x").append(data)
    return disk.open("x")


@given(offsets=rising, wanted=st.integers(-5, 2**31 + 5), cut=st.integers(0, 2**31))
def test_the_offset_index_answers_from_memory_as_from_its_file(offsets: list[int], wanted: int, cut: int) -> None:
    index = OffsetIndex(BASE)
    for position, offset in enumerate(offsets):
        index.append(BASE + offset, position * 100)
    expected = max((position * 100 for position, offset in enumerate(offsets) if offset <= wanted), default=0)
    assert index.lookup(BASE + wanted) == expected
    assert search_offset_index(file_with(index.to_bytes()), BASE, BASE + wanted) == expected
    assert OffsetIndex(BASE, index.to_bytes()).to_bytes() == index.to_bytes()
    index.truncate_to(BASE + cut)
    kept = [(offset, position * 100) for position, offset in enumerate(offsets) if offset < cut]
    assert index.last_entry() == ((BASE + kept[-1][0], kept[-1][1]) if kept else None)
    assert len(index) == len(kept)


@given(rising, rising, st.integers(-5, 2**31 + 5), st.integers(0, 2**31))
def test_the_time_index_answers_from_memory_as_from_its_file(
    times: list[int], offsets: list[int], wanted: int, cut: int
) -> None:
    entries = list(zip(times, offsets, strict=False))
    index = TimeIndex(BASE)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, BASE + offset)
        index.maybe_append(timestamp, BASE + offset + 1)
    fitting = [(timestamp, BASE + offset) for timestamp, offset in entries if timestamp <= wanted]
    expected = fitting[-1] if fitting else (-1, BASE)
    assert index.lookup(wanted) == expected
    file = file_with(index.to_bytes())
    assert search_time_index(file, BASE, wanted) == expected
    assert last_time_entry(file, BASE) == index.last_entry()
    assert TimeIndex(BASE, index.to_bytes()).to_bytes() == index.to_bytes()
    index.truncate_to(BASE + cut)
    assert len(index) == sum(offset < cut for _, offset in entries)


@settings(max_examples=20, deadline=None)
@given(count=st.integers(500, 3000), wanted=st.integers(-5, 10_000))
def test_large_index_files_are_searched_without_reading_them_whole(count: int, wanted: int) -> None:
    index = OffsetIndex(BASE)
    for slot in range(count):
        index.append(BASE + slot * 3, slot * 7)
    assert search_offset_index(file_with(index.to_bytes()), BASE, BASE + wanted) == index.lookup(BASE + wanted)


def test_index_files_that_cannot_be_true_are_not_trusted() -> None:
    index = OffsetIndex(BASE)
    assert offset_index_is_sound(b"", 0)
    index.append(BASE + 5, 100)
    index.append(BASE + 9, 200)
    assert offset_index_is_sound(index.to_bytes(), 201)
    assert not offset_index_is_sound(index.to_bytes(), 200)
    assert not offset_index_is_sound(index.to_bytes()[:-1], 1000)
    assert not offset_index_is_sound(index.to_bytes() + bytes(80), 1000)
    times = TimeIndex(BASE)
    assert time_index_is_sound(b"")
    times.maybe_append(50, BASE + 5)
    assert time_index_is_sound(times.to_bytes())
    assert not time_index_is_sound(times.to_bytes()[:-1])
    assert not time_index_is_sound(times.to_bytes() + bytes(120))
