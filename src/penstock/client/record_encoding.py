"""From Arrow columns to records as they go on the wire: which partition each row goes to, and its bytes.

Rows of one partition stay in order. numba does the work where it is installed; without it, the record codec does.
"""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.protocol.records import Record, encode_records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
# Importing numba takes as long as the record codec needs for about this many records.
_ROWS_WORTH_NUMBA = 50_000
_KERNEL = "penstock.client.encode_kernel"


def kernel_for(rows: int) -> ModuleType | None:
    """`encode_kernel`, if there is numba and if it pays for so many rows."""
    if rows < _ROWS_WORTH_NUMBA and _KERNEL not in sys.modules:
        return None
    try:
        return importlib.import_module(_KERNEL)
    except ImportError:
        return None


class ByteColumn(NamedTuple):
    """Row i is data[offsets[i]:offsets[i + 1]], or null."""

    offsets: "Ints"
    data: "NDArray[np.uint8]"
    nulls: "Flags"

    def at(self, row: int) -> bytes | None:
        if self.nulls[row]:
            return None
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()


@dataclass(slots=True)
class RowColumns:
    keys: ByteColumn
    values: ByteColumn
    # Headers of row i are those from header_offsets[i] up to header_offsets[i + 1].
    header_offsets: "Ints"
    header_names: ByteColumn
    header_values: ByteColumn

    def __len__(self) -> int:
        return len(self.values.nulls)

    def record(self, row: int, offset: int) -> Record:
        headers = range(int(self.header_offsets[row]), int(self.header_offsets[row + 1]))
        pairs = tuple(((self.header_names.at(each) or b"").decode(), self.header_values.at(each)) for each in headers)
        return Record(offset, 0, self.keys.at(row), self.values.at(row), pairs)


def byte_column(array: pa.Array) -> ByteColumn:
    """Of a binary or string array, small or large."""
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    rows = len(array)
    found: Any = np.zeros(rows + 1, np.int64)
    if offsets is not None and rows:
        found = np.frombuffer(offsets, np.int64 if is_large else np.int32)[array.offset : array.offset + rows + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return ByteColumn(found.astype(np.int64), raw, nulls_of(array))


def null_column(rows: int) -> ByteColumn:
    return ByteColumn(np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8), np.ones(rows, np.bool_))


def nulls_of(array: pa.Array) -> "Flags":
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    valid = np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)]
    nulls: Flags = valid == 0
    return nulls


def row_columns(values: pa.Array, keys: pa.Array | None = None, headers: pa.Array | None = None) -> RowColumns:
    rows = len(values)
    header_offsets = np.zeros(rows + 1, np.int64)
    names = header_values = null_column(0)
    if headers is not None and len(headers):
        offsets = np.frombuffer(headers.buffers()[1], np.int32)[headers.offset : headers.offset + rows + 1]
        # A null list may still span items in the buffer: only what lists hold is taken.
        lengths = np.where(nulls_of(headers), 0, np.diff(offsets))
        header_offsets[1:] = np.cumsum(lengths)
        names, header_values = (byte_column(column) for column in headers.flatten().flatten())
    return RowColumns(
        null_column(rows) if keys is None else byte_column(keys),
        byte_column(values),
        header_offsets,
        names,
        header_values,
    )


def hash_partitions(keys: ByteColumn, partition_count: int, kernel: ModuleType | None) -> "Ints":
    """Where Java's default partitioner sends each key; of null keys it says nothing of use."""
    out = np.empty(len(keys.nulls), np.int64)
    if kernel is not None:
        kernel.hash_partitions(keys.offsets, keys.data, partition_count, out)
    else:
        for row in range(len(out)):
            out[row] = murmur2(keys.at(row) or b"") % partition_count
    return out


def murmur2(data: bytes) -> int:
    """Kafka's, with its seed, and made positive as Java's clients do."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    whole = len(data) & ~3
    hash_ = 0x9747B28C ^ len(data)
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        hash_ = (hash_ * multiplier & mask) ^ word
    if whole < len(data):
        hash_ = (hash_ ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    hash_ = (hash_ ^ hash_ >> 13) * multiplier & mask
    return (hash_ ^ hash_ >> 15) & 0x7FFFFFFF


class RecordEncoder:
    """Makes records sections of at most `bytes_max`; a record that is larger goes alone."""

    def __init__(self, bytes_max: int) -> None:
        self._out = np.empty(bytes_max, np.uint8)
        self.kernel: ModuleType | None = None

    def sections(self, columns: RowColumns, rows: "Ints") -> Iterator[tuple[bytes, int]]:
        """(records section, number of records) for the rows, in their order. All timestamps are the batch's."""
        first = 0
        while first < len(rows):
            count, section = self._section(columns, rows, first)
            first += count
            yield section, count

    def _section(self, columns: RowColumns, rows: "Ints", first: int) -> tuple[int, bytes]:
        if self.kernel is None:
            return self._plain_section(columns, rows, first)
        keys, values, names, others = columns.keys, columns.values, columns.header_names, columns.header_values
        out = self._out
        while True:
            arguments = (rows, first, out, *keys, *values, columns.header_offsets, *names[:2], *others)
            count, size = self.kernel.encode(*arguments)
            if count:
                return count, out[:size].tobytes()
            out = np.empty(2 * len(out), np.uint8)
            rows = rows[: first + 1]

    def _plain_section(self, columns: RowColumns, rows: "Ints", first: int) -> tuple[int, bytes]:
        section = bytearray()
        count = 0
        for row in rows[first:].tolist():
            record = encode_records([columns.record(row, count)], 0, 0)
            if count and len(section) + len(record) > len(self._out):
                break
            section += record
            count += 1
        return count, bytes(section)
