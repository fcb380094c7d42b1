"""From the bytes of a fetch to columns of numbers and positions: the step before Arrow.

Nothing is copied but what is compressed. Keys and values stay where they are: a slot is a pair of positions, start and
end, in ascending order, so that the pairs with the gaps between them are the offsets of one Arrow binary array.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.client.batch_table import BatchTable
from penstock.client.unpacking import Unpacker
from penstock.protocol.batch import LOG_APPEND_TIME
from penstock.protocol.records import CorruptRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# A record takes seven bytes at least; what claims to have more is corrupt, and no memory is reserved for it.
_RECORD_BYTES_MIN = 7

# (parse, parse_headers) of `record_kernel` or `record_numpy`.
Parse = tuple[Callable[..., int], Callable[..., int]]


@dataclass(slots=True)
class RecordColumns:
    """One row for each record. Positions are in `data`."""

    data: "NDArray[np.uint8]"
    offsets: "Ints"
    times_ms: "Ints"
    timestamp_types: "NDArray[np.int32] | int"
    key_slots: "NDArray[np.int32]"
    key_nulls: "NDArray[np.bool_]"
    value_slots: "NDArray[np.int32]"
    value_nulls: "NDArray[np.bool_]"
    header_starts: "Ints"
    header_counts: "Ints"

    def __len__(self) -> int:
        return len(self.offsets)


@cache
def kernel() -> Parse:
    """numba's, or numpy's where there is no numba."""
    try:
        from penstock.client import record_kernel
    except ImportError:
        return numpy_kernel()
    return record_kernel.parse, record_kernel.parse_headers


def numpy_kernel() -> Parse:
    from penstock.client import record_numpy

    return record_numpy.parse, record_numpy.parse_headers


def read_columns(
    table: BatchTable,
    first_offset: int,
    end_offset: int,
    aborted: Sequence[tuple[int, int]] | None,
    parse: Callable[..., int],
    unpacker: Unpacker,
) -> RecordColumns | None:
    """The records from `first_offset` up to and without `end_offset`; None when there are none. `aborted` as in
    `BatchTable.visible`. Valid until the unpacker is used again. Raises CorruptRecords."""
    chosen = np.flatnonzero(table.visible(aborted))
    if not len(chosen):
        return None
    headers = table.headers[chosen]
    data, starts, ends = unpacker.unpacked(table, chosen, headers)
    counts = headers["record_count"].astype(np.int64)
    if np.any(counts * _RECORD_BYTES_MIN > ends - starts):
        raise CorruptRecords("a batch has more records than bytes")
    rows_max = int(counts.sum())
    is_append_time = headers["attributes"] & LOG_APPEND_TIME != 0
    columns: dict[str, Any] = {
        "offsets": np.empty(rows_max, np.int64),
        "times_ms": np.empty(rows_max, np.int64),
        "key_slots": np.empty(2 * rows_max, np.int32),
        "key_nulls": np.empty(rows_max, np.bool_),
        "value_slots": np.empty(2 * rows_max, np.int32),
        "value_nulls": np.empty(rows_max, np.bool_),
        "header_starts": np.empty(rows_max, np.int64),
        "header_counts": np.empty(rows_max, np.int64),
    }
    kept = np.zeros(len(chosen), np.int64)
    rows = parse(
        data,
        starts,
        ends,
        counts,
        headers["base_offset"].astype(np.int64),
        headers["base_timestamp"].astype(np.int64),
        headers["max_timestamp"].astype(np.int64),
        is_append_time,
        first_offset,
        end_offset,
        *columns.values(),
        kept,
    )
    if rows < 0:
        raise CorruptRecords(f"the batch at offset {int(headers[-1 - rows]['base_offset'])} is corrupt")
    if not rows:
        return None
    if rows < rows_max:
        columns = {name: column[: 2 * rows if name.endswith("slots") else rows] for name, column in columns.items()}
    types: NDArray[np.int32] | int = int(is_append_time[0])
    if np.any(is_append_time != is_append_time[0]):
        types = np.repeat(is_append_time.astype(np.int32), kept)
    return RecordColumns(data=data, timestamp_types=types, **columns)
