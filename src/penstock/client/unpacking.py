"""The records sections of a fetch's batches side by side in one buffer, unpacked.

The buffer is used again for the next fetch: memory that is touched for the first time costs more than unpacking does.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.client.batch_table import BatchTable
from penstock.protocol.batch import CODEC_MASK, HEADER_BYTES, PREFIX_BYTES
from penstock.protocol.compression import LZ4, CorruptCompression, UnpacksTooLarge, decompress, unpack_lz4_into
from penstock.protocol.records import CorruptRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

UNPACKED_BYTES_MAX = 1 << 30
_ROOM_BYTES_MIN = 64 * 1024


class Unpacker:
    def __init__(self) -> None:
        self._buffer: NDArray[np.uint8] = np.empty(0, np.uint8)

    def unpacked(self, table: BatchTable, chosen: "Ints", headers: Any) -> tuple["NDArray[np.uint8]", "Ints", "Ints"]:
        """(bytes, where each batch's records start in them, where they end), of the chosen batches with these headers.
        The bytes are valid until the next call. Raises CorruptRecords."""
        codecs = headers["attributes"] & CODEC_MASK
        starts = table.positions[chosen] + HEADER_BYTES
        ends = starts + headers["batch_length"] + (PREFIX_BYTES - HEADER_BYTES)
        if not codecs.any():
            return np.frombuffer(table.data, np.uint8), starts, ends
        bounds = [0]
        try:
            for codec, start, end in zip(codecs.tolist(), starts.tolist(), ends.tolist(), strict=True):
                bounds.append(self._append(bounds[-1], codec, table.data[start:end]))
        except CorruptCompression as error:
            raise CorruptRecords(str(error)) from error
        positions = np.array(bounds, np.int64)
        return self._buffer[: bounds[-1]], positions[:-1], positions[1:]

    def _append(self, position: int, codec: int, packed: memoryview) -> int:
        """Where it ends."""
        allowed = min(_ROOM_BYTES_MIN + 8 * len(packed), UNPACKED_BYTES_MAX - position)
        if codec == LZ4:
            self._reserve(position, position + allowed)
            size = unpack_lz4_into(packed, self._buffer[position : position + allowed].data)
            if size is not None:
                return position + size
        part = _unpacked_one(codec, packed, allowed, UNPACKED_BYTES_MAX - position)
        end = position + len(part)
        self._reserve(position, end)
        self._buffer[position:end] = np.frombuffer(part, np.uint8)
        return end

    def _reserve(self, used: int, end: int) -> None:
        if end > len(self._buffer):
            # Replaced and not resized: what was handed out may still look at the old one.
            larger = np.empty(2 * end, np.uint8)
            larger[:used] = self._buffer[:used]
            self._buffer = larger


def _unpacked_one(codec: int, packed: memoryview, allowed: int, size_max: int) -> bytes:
    """Libraries reserve as much as they are allowed, which may take longer than unpacking: so it is little at first."""
    while True:
        try:
            return decompress(codec, packed, allowed)
        except UnpacksTooLarge:
            if allowed >= size_max:
                raise
            allowed = min(16 * allowed, size_max)
