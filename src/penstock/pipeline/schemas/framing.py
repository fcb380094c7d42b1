"""Confluent's frame around a value: a zero, the schema's id in four bytes, then what the format makes."""

from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.client.record_encoding import byte_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FRAME = Struct(">bI")
_MAGIC = 0
FRAME_BYTES = _FRAME.size
NO_ID = -1


def schema_ids(values: pa.Array) -> "NDArray[np.int64]":
    """Of every row at once; NO_ID where the value is null or has no frame."""
    column = byte_column(values)
    ids: Any = np.full(len(values), NO_ID, np.int64)
    starts = column.offsets[:-1]
    is_framed = ~column.nulls & (np.diff(column.offsets) >= FRAME_BYTES)
    is_framed[is_framed] = column.data[starts[is_framed]] == _MAGIC
    framed = starts[is_framed]
    found: Any = np.zeros(len(framed), np.int64)
    for place in range(1, FRAME_BYTES):
        found = found << 8 | column.data[framed + place]
    ids[is_framed] = found
    result: NDArray[np.int64] = ids
    return result


def framed(payloads: list[bytes | None], schema_id: int) -> pa.Array:
    frame = _FRAME.pack(_MAGIC, schema_id)
    return pa.array([None if each is None else frame + each for each in payloads], pa.binary())
