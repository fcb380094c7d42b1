"""Columns of a partition's records as Arrow arrays, which own their memory.

Bytes are gathered by Arrow itself: the slots are laid over the fetch buffer as one binary array (record, gap, record,
gap, ...), and every second item of it is taken.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.client.record_columns import RecordColumns
from penstock.protocol.records import CorruptRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
"""The columns that there are, in the order of Spark's Kafka source."""


class ArrowColumns:
    """Makes record batches of one partition. The schema decides which columns, in which order, and in which unit the
    timestamp is."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema, parse_headers: Callable[..., int]) -> None:
        self._schema = schema
        self._parse_headers = parse_headers
        self._topic = topic.encode()
        self._partition = partition
        # Columns that are the same in all rows, made once for the longest batch so far.
        self._repeated: dict[bytes | int, pa.Array] = {}
        self._even = _even_slots(0)

    def batch(self, columns: RecordColumns) -> pa.RecordBatch:
        """Raises CorruptRecords for header names that are not text."""
        rows = len(columns)
        if len(self._even) < rows:
            self._even = _even_slots(rows)
        arrays = [self._column(field.name, field.type, columns, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, type_: pa.DataType, columns: RecordColumns, rows: int) -> pa.Array:
        match name:
            case "key":
                return self._taken(columns.data, columns.key_slots, columns.key_nulls, rows)
            case "value":
                return self._taken(columns.data, columns.value_slots, columns.value_nulls, rows)
            case "offset":
                return _of_numbers(type_, columns.offsets)
            case "timestamp":
                return _of_numbers(type_, _in_unit(columns.times_ms, type_.unit))
            case "timestampType":
                types = columns.timestamp_types
                return self._constant(types, rows) if isinstance(types, int) else _of_numbers(type_, types)
            case "headers":
                return self._headers(type_, columns, rows)
            case "topic":
                return self._constant(self._topic, rows)
            case "partition":
                return self._constant(self._partition, rows)
        raise KeyError(name)

    def _constant(self, value: bytes | int, rows: int) -> pa.Array:
        repeated = self._repeated.get(value)
        if repeated is None or len(repeated) < rows:
            repeated = self._repeated[value] = (
                _of_texts(value, rows)
                if isinstance(value, bytes)
                else (_of_numbers(pa.int32(), np.full(rows, value, np.int32)))
            )
        return repeated.slice(0, rows)

    def _taken(
        self, data: "NDArray[np.uint8]", slots: "NDArray[np.int32]", nulls: "NDArray[np.bool_]", rows: int
    ) -> pa.Array:
        if not rows:
            return pa.nulls(0, pa.binary())
        even = self._even.slice(0, rows)
        if nulls.any():
            if nulls.all():
                return pa.nulls(rows, pa.binary())
            even = _of_numbers(pa.int32(), np.arange(0, 2 * rows, 2, dtype=np.int32), nulls)
        # Two positions for each slot make one item more than there are slots and gaps between them.
        laid = pa.BinaryArray.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(slots), pa.py_buffer(data)])
        return laid.take(even)

    def _headers(self, type_: pa.DataType, columns: RecordColumns, rows: int) -> pa.Array:
        """A record without headers has none: null, as in Spark."""
        counts = columns.header_counts
        total = int(counts.sum())
        key_slots = np.empty(2 * total, np.int32)
        value_slots = np.empty(2 * total, np.int32)
        value_nulls = np.empty(total, np.bool_)
        self._parse_headers(columns.data, columns.header_starts, counts, key_slots, value_slots, value_nulls)
        if len(self._even) < total:
            self._even = _even_slots(total)
        keys = self._taken(columns.data, key_slots, np.zeros(total, np.bool_), total)
        values = self._taken(columns.data, value_slots, value_nulls, total)
        try:
            names = keys.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise CorruptRecords("the name of a header is not text") from error
        pairs = pa.StructArray.from_arrays([names, values], fields=list(type_.value_type))
        ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return pa.ListArray.from_buffers(type_, rows, [_validity(counts == 0), pa.py_buffer(ends)], children=[pairs])


def _even_slots(rows: int) -> pa.Array:
    return _of_numbers(pa.int32(), np.arange(0, 2 * rows, 2, dtype=np.int32))


# pa.array and pa.scalar would do, but their first call imports pandas, for which every Spark worker would wait.
def _of_numbers(type_: pa.DataType, numbers: "NDArray[Any]", nulls: "NDArray[np.bool_] | None" = None) -> pa.Array:
    validity = None if nulls is None else _validity(nulls)
    return pa.Array.from_buffers(type_, len(numbers), [validity, pa.py_buffer(numbers)])


def _validity(nulls: "NDArray[np.bool_]") -> pa.Buffer:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def _of_texts(text: bytes, rows: int) -> pa.Array:
    ends = np.arange(0, (rows + 1) * len(text), len(text), dtype=np.int32)[: rows + 1]
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text * rows))


def _in_unit(times_ms: "NDArray[np.int64]", unit: str) -> "NDArray[np.int64]":
    return times_ms if unit == "ms" else times_ms * {"us": 1_000, "ns": 1_000_000}[unit]


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])
