"""What is written from Arrow columns is what the record codec would have written."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.partitioners import murmur2 as murmur2_of_the_commands
from penstock.client import encode_kernel
from penstock.client.record_encoding import RecordEncoder, byte_column, hash_partitions, murmur2, row_columns
from penstock.protocol.records import Record, encode_records

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KERNELS = pytest.mark.parametrize("kernel", [encode_kernel, None], ids=["numba", "plain"])
_bytes = st.none() | st.binary(max_size=150)
_pairs = st.none() | st.lists(st.tuples(st.text(max_size=4), _bytes), max_size=3)
_rows = st.lists(st.tuples(_bytes, _bytes, _pairs), max_size=20)


def columns_of(rows: list[tuple[Any, ...]], *, large: bool, offset: int) -> Any:
    binary = pa.large_binary() if large else pa.binary()
    padded = [(b"pad", b"pad", [("pad", b"pad")])] * offset + rows
    arrays = [pa.array([row[index] for row in padded], binary) for index in (0, 1)]
    lists = [None if row[2] is None else [{"key": k, "value": v} for k, v in row[2]] for row in padded]
    arrays.append(pa.array(lists, HEADERS))
    keys, values, headers = (array.slice(offset) for array in arrays)
    return row_columns(values, keys, headers)


@KERNELS
@settings(deadline=None)
@given(rows=_rows, large=st.booleans(), offset=st.integers(0, 3), bytes_max=st.sampled_from((1, 100, 1_000, 100_000)))
def test_sections_hold_the_rows_in_order(
    kernel: Any, rows: list[tuple[Any, ...]], large: bool, offset: int, bytes_max: int
) -> None:
    encoder = RecordEncoder(bytes_max)
    encoder.kernel = kernel
    columns = columns_of(rows, large=large, offset=offset)
    order = np.arange(len(rows))[::-1].copy()
    left = [rows[index] for index in order]
    for section, count in encoder.sections(columns, order):
        taken, left = left[:count], left[count:]
        records = [Record(index, 0, key, value, tuple(pairs or ())) for index, (key, value, pairs) in enumerate(taken)]
        assert section == encode_records(records, 0, 0)
        assert len(section) <= bytes_max or count == 1
    assert not left


@KERNELS
@settings(deadline=None)
@given(keys=st.lists(st.binary(max_size=40), min_size=1), count=st.integers(1, 50))
def test_keys_go_where_java_sends_them(kernel: Any, keys: list[bytes], count: int) -> None:
    found = hash_partitions(byte_column(pa.array(keys, pa.binary())), count, kernel)
    assert found.tolist() == [(murmur2_of_the_commands(key) & 0x7FFFFFFF) % count for key in keys]


def test_murmur2_is_kafkas() -> None:
    """The values of Kafka's own UtilsTest, made positive."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in known} == {key: value & 0x7FFFFFFF for key, value in known.items()}
