import io
from contextlib import suppress
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.data_files import Unreadable, is_known, read_batches, small_file_rows
from penstock.log.checkpoints import format_checkpoint
from penstock.log.index import OFFSET_ENTRY, TIME_ENTRY
from penstock.protocol.compression import ZSTD
from penstock.protocol.records import Record, build_batch

BATCHES = (
    build_batch([Record(0, 1000, b"a", b"1"), Record(1, 1001, None, None, (("h", b"x"),))], leader_epoch=4),
    build_batch([Record(2, 2000, b"b", b"2" * 100)], codec=ZSTD, producer_id=9, producer_epoch=1, base_sequence=5),
)
SEGMENT = bytes(b"".join(BATCHES))


def test_every_batch_of_a_segment_is_read_with_its_place() -> None:
    first, second = (batch.row() for batch in read_batches(io.BytesIO(SEGMENT)))
    assert (first["base_offset"], first["last_offset"], first["records"], first["position"]) == (0, 1, 2, 0)
    assert (first["leader_epoch"], first["codec"], first["problem"]) == (4, "none", None)
    assert (second["position"], second["codec"], second["producer_id"]) == (len(BATCHES[0]), "zstd", 9)


def test_a_flipped_bit_is_a_wrong_checksum_and_the_rest_is_still_read() -> None:
    damaged = bytearray(SEGMENT)
    damaged[len(BATCHES[0]) - 1] ^= 1
    assert [batch.problem for batch in read_batches(io.BytesIO(damaged))] == ["wrong checksum", None]


@given(st.integers(1, len(BATCHES[1]) - 1))
def test_a_torn_tail_is_reported_wherever_it_is_torn(missing: int) -> None:
    batches = read_batches(io.BytesIO(SEGMENT[:-missing]))
    assert next(batches).problem is None
    with pytest.raises(Unreadable, match="torn"):
        next(batches)


@given(st.binary(min_size=61, max_size=200))
def test_bytes_that_are_no_segment_are_refused_or_read_but_never_crash(data: bytes) -> None:
    with suppress(Unreadable):
        for batch in read_batches(io.BytesIO(data)):
            batch.row()


def test_index_entries_are_shown_with_absolute_offsets() -> None:
    path = PurePath("t-0/00000000000000000100.index")
    data = OFFSET_ENTRY.pack(5, 4096) + OFFSET_ENTRY.pack(9, 8192)
    assert small_file_rows(path, data) == [{"offset": 105, "position": 4096}, {"offset": 109, "position": 8192}]
    time_data = TIME_ENTRY.pack(1000, 5) + TIME_ENTRY.pack(2000, 9)
    assert small_file_rows(path.with_suffix(".timeindex"), time_data)[1] == {"timestamp": 2000, "offset": 109}


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("00000000000000000000.index", b"123", "no whole number of 8-byte entries"),
        ("00000000000000000000.index", OFFSET_ENTRY.pack(9, 1) + OFFSET_ENTRY.pack(5, 2), "5 comes after 9"),
        ("00000000000000000000.timeindex", b"1", "no whole number of 12-byte entries"),
        ("00000000000000000000.txnindex", b"1", "no whole number of 34-byte entries"),
        ("00000000000000000000.snapshot", b"1", "cut short"),
        ("recovery-point-offset-checkpoint", b"7\n1\nx", "version"),
        ("meta.properties", b"version=9\n", "version"),
        ("partition.metadata", b"", "version"),
    ],
)
def test_damaged_files_are_refused_with_the_reason(name: str, data: bytes, complaint: str) -> None:
    with pytest.raises(Unreadable, match=complaint):
        small_file_rows(PurePath(name), data)


def test_checkpoints_are_rows_of_their_columns() -> None:
    offsets = small_file_rows(PurePath("recovery-point-offset-checkpoint"), format_checkpoint([("t", 0, 5)]))
    assert offsets == [{"topic": "t", "partition": 0, "offset": 5}]
    epochs = small_file_rows(PurePath("leader-epoch-checkpoint"), format_checkpoint([(0, 0), (3, 17)]))
    assert epochs[1] == {"epoch": 3, "start_offset": 17}


def test_only_files_of_a_log_are_known() -> None:
    known = ["00000000000000000000.log", "00000000000000000009.snapshot", "meta.properties", "leader-epoch-checkpoint"]
    unknown = ["node-1.log", "notes.txt", "x.index", ".lock", "00000000000000000000.log.deleted"]
    assert [name for name in known + unknown if is_known(PurePath(name))] == known
