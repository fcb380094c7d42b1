"""Columns hold what the record codec reads, whichever kernel made them."""

from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client import record_kernel, record_numpy, unpacking
from penstock.client.arrow_columns import TYPES, ArrowColumns, schema_of
from penstock.client.batch_table import BatchTable
from penstock.client.record_columns import Parse, read_columns
from penstock.client.unpacking import Unpacker
from penstock.protocol.batch import LOG_APPEND_TIME, encode_batch, read_header
from penstock.protocol.records import CorruptRecords, Record, build_batch, iterate_records
from tests.unit.client.made import batches, data_batch, emptied_batch, marker

NUMBA: Parse = (record_kernel.parse, record_kernel.parse_headers)
NUMPY: Parse = (record_numpy.parse, record_numpy.parse_headers)
KERNELS = pytest.mark.parametrize("kernel", [NUMBA, NUMPY], ids=["numba", "numpy"])
EVER = 2**62


def rows_of(
    data: bytes | bytearray,
    kernel: Parse,
    first: int = 0,
    end: int = EVER,
    aborted: Any = None,
    *,
    check_crcs: bool = True,
) -> list[tuple[Any, ...]]:
    table = BatchTable(memoryview(data), 0, len(data), check_crcs=check_crcs)
    columns = read_columns(table, first, end, aborted, kernel[0], Unpacker())
    if columns is None:
        return []
    batch = ArrowColumns("topic", 3, schema_of(list(TYPES)), kernel[1]).batch(columns)
    batch.validate(full=True)
    plain = batch.set_column(5, "timestamp", batch["timestamp"].cast(pa.int64()))
    return [tuple(row.values()) for row in plain.to_pylist()]


def expected_rows(made: list[bytes], first: int = 0, end: int = EVER) -> list[tuple[Any, ...]]:
    rows = []
    for batch in made:
        header = read_header(batch)
        time_type = int(header.attributes & LOG_APPEND_TIME != 0)
        for record in iterate_records(batch, header):
            headers = [{"key": name, "value": value} for name, value in record.headers] or None
            row = (record.key, record.value, "topic", 3, record.offset, record.timestamp, time_type, headers)
            if first <= record.offset < end:
                rows.append(row)
    return rows


@KERNELS
@settings(deadline=None)
@given(made=batches(), data=st.data())
def test_columns_hold_what_the_record_codec_reads(kernel: Parse, made: list[bytes], data: st.DataObject) -> None:
    everything = expected_rows(made)
    assert rows_of(b"".join(made), kernel) == everything
    if everything:
        offsets = st.sampled_from([row[4] + shift for row in everything for shift in (-1, 0, 1)])
        first, end = data.draw(offsets), data.draw(offsets)
        assert rows_of(b"".join(made), kernel, first, end) == expected_rows(made, first, end)


@KERNELS
def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch(kernel: Parse) -> None:
    whole = data_batch(5, -1)
    for length in range(len(whole)):
        assert rows_of(whole + whole[:length], kernel) == expected_rows([whole])


@settings(deadline=None)
@given(section=st.binary(max_size=60), count=st.integers(0, 4), sound=batches())
def test_both_kernels_find_the_same_corruption(section: bytes, count: int, sound: list[bytes]) -> None:
    damaged = bytes(encode_batch(section, record_count=count, base_offset=2**50, base_timestamp=5))
    answers = [_rows_or_corrupt(b"".join(sound) + damaged, kernel) for kernel in (NUMBA, NUMPY)]
    assert answers[0] == answers[1]


@settings(deadline=None)
@given(made=batches(), data=st.data())
def test_both_kernels_agree_on_bytes_that_were_changed_on_the_way(made: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(made))
    if whole:
        for _ in range(3):
            whole[data.draw(st.integers(61, len(whole) - 1))] = data.draw(st.integers(0, 255))
    answers = [_rows_or_corrupt(bytes(whole), kernel, check_crcs=False) for kernel in (NUMBA, NUMPY)]
    # Of several corrupt batches each kernel names the one that it comes upon first.
    assert answers[0] == answers[1] or all(isinstance(answer, str) for answer in answers)


def _rows_or_corrupt(data: bytes, kernel: Parse, check_crcs: bool = True) -> object:
    try:
        return rows_of(data, kernel, check_crcs=check_crcs)
    except CorruptRecords as error:
        return str(error)


def test_a_wrong_checksum_is_noticed_unless_nobody_looks() -> None:
    damaged = bytearray(data_batch(0, -1, b"value"))
    damaged[-3] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        rows_of(bytes(damaged), NUMBA)
    assert len(rows_of(bytes(damaged), NUMBA, check_crcs=False)) == 1


@KERNELS
@pytest.mark.parametrize("codec", range(5))
@settings(deadline=None, max_examples=20)
@given(values=st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=90)), min_size=1))
def test_batches_of_aiokafka_are_read(kernel: Parse, codec: int, values: list[tuple[Any, Any]]) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset, (key, value) in enumerate(values):
        builder.append(offset, 1_000 + offset, key, value, [("h", value)])
    rows = rows_of(bytes(builder.build()), kernel)
    assert [(row[0], row[1], row[4], row[5]) for row in rows] == [
        (key, value, offset, 1_000 + offset) for offset, (key, value) in enumerate(values)
    ]
    assert [row[7] for row in rows] == [[{"key": "h", "value": value}] for _, value in values]


@KERNELS
def test_control_batches_and_emptied_ones_are_not_records(kernel: Parse) -> None:
    log = [data_batch(0, 1), marker(1, 1, commits=True), emptied_batch(2, 8), data_batch(11, 1)]
    assert [row[4] for row in rows_of(b"".join(log), kernel)] == [0, 11]
    assert BatchTable(memoryview(emptied_batch(2, 8)), 0, 61).next_offset == 11


@KERNELS
def test_readers_of_committed_data_do_not_see_aborted_transactions(kernel: Parse) -> None:
    """KIP-98: a transaction is cut out from its first offset to its abort marker, and no further."""
    log = [
        data_batch(0, 1),
        data_batch(1, 2),
        marker(2, 2, commits=True),
        marker(3, 1, commits=False),
        data_batch(4, 1),
        marker(5, 1, commits=True),
        data_batch(6, 2),
        marker(7, 2, commits=False),
        data_batch(8, -1),
    ]
    aborted = [(1, 0), (2, 6)]
    assert [row[4] for row in rows_of(b"".join(log), kernel, aborted=aborted)] == [1, 4, 8]
    assert [row[4] for row in rows_of(b"".join(log), kernel)] == [0, 1, 4, 6, 8]


@settings(deadline=None)
@given(data=st.data())
def test_what_is_cut_out_is_what_was_aborted(data: st.DataObject) -> None:
    """Random transactions of three producers, read from the start or from somewhere in the middle."""
    log: list[bytes] = []
    open_since: dict[int, int] = {}
    fate: dict[int, list[int]] = {}
    aborted: list[tuple[int, int, int]] = []
    committed: set[int] = set()
    for offset in range(data.draw(st.integers(0, 30))):
        producer = data.draw(st.integers(1, 3))
        if producer in open_since and data.draw(st.booleans()):
            commits = data.draw(st.booleans())
            log.append(marker(offset, producer, commits=commits))
            first = open_since.pop(producer)
            if commits:
                committed.update(fate.pop(producer))
            else:
                aborted.append((producer, first, offset))
                fate.pop(producer)
        else:
            open_since.setdefault(producer, offset)
            fate.setdefault(producer, []).append(offset)
            log.append(data_batch(offset, producer))
    stable = min(open_since.values(), default=len(log))
    start = data.draw(st.integers(0, stable))
    # The broker tells of the aborted transactions that reach into what was fetched.
    told = [(producer, first) for producer, first, last in aborted if last >= start and first < stable]
    rows = rows_of(b"".join(log[start:stable]), NUMBA, start, stable, aborted=told)
    assert [row[4] for row in rows] == sorted(each for each in committed if start <= each < stable)


def test_what_unpacks_to_too_much_is_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bytes(build_batch([Record(0, 0, None, bytes(3_000_000))], codec=3))
    assert len(packed) < 30_000
    assert len(rows_of(packed, NUMBA)) == 1
    monkeypatch.setattr(unpacking, "UNPACKED_BYTES_MAX", 2_000_000)
    with pytest.raises(CorruptRecords, match="more than 2000000 bytes"):
        rows_of(packed, NUMBA)


def test_what_is_kept_is_compiled_for_one_signature() -> None:
    """numba may give a process what another one compiles at the same time, for other types."""
    made = data_batch(0, -1, b"value")
    for received in (made, bytearray(made)):
        rows_of(received, NUMBA)
    kept = [each for each in vars(record_kernel).values() if getattr(each, "stats", None) and each.stats.cache_path]
    assert {len(each.signatures) for each in kept if each.signatures} == {1}
    assert {each.__name__ for each in kept} == {"_parse", "_parse_headers"}
