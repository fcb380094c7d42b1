"""The batches of a fetch answer as one table of headers, and which of them a reader gets to see.

A fetch may end in the middle of a batch: that one is left for the next fetch. What is left out here: control batches,
and to readers of committed data the batches of aborted transactions, by the rule of KIP-98.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from penstock.protocol.batch import CONTROL, CRC_START, HEADER_BYTES, MAGIC, PREFIX_BYTES, TRANSACTIONAL
from penstock.protocol.records import CorruptRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER_DTYPE = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADER_DTYPE.itemsize == HEADER_BYTES

# A control record's key is its version and then 0 for an abort, both int16.
_ABORT_MARKER = b"\0\0"

Table = Any


class BatchTable:
    """Positions of whole batches in a buffer, and their headers as columns."""

    def __init__(self, data: memoryview, begin: int, end: int, *, check_crcs: bool = True) -> None:
        """Raises CorruptRecords."""
        self.data = data
        positions = []
        position = begin
        while position + HEADER_BYTES <= end:
            size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + PREFIX_BYTES
            if size < HEADER_BYTES:
                raise CorruptRecords(f"a batch of {size} bytes is shorter than its header")
            if position + size > end:
                break
            positions.append(position)
            position += size
        self.positions: NDArray[np.int64] = np.array(positions, np.int64)
        view = np.frombuffer(data, np.uint8)
        rows = view[self.positions[:, None] + np.arange(HEADER_BYTES)]
        self.headers: Table = rows.view(HEADER_DTYPE)[:, 0] if positions else np.empty(0, HEADER_DTYPE)
        if positions:
            self._check(check_crcs)

    def _check(self, check_crcs: bool) -> None:
        headers = self.headers
        if np.any(headers["magic"] != MAGIC):
            raise CorruptRecords("a batch is not of format 2; topics with older formats cannot be read")
        if np.any(headers["record_count"] < 0) or np.any(headers["last_offset_delta"] < 0):
            raise CorruptRecords("a batch counts less than no records")
        if check_crcs:
            data = self.data
            ends = self.positions + headers["batch_length"] + PREFIX_BYTES
            for position, end, crc in zip(self.positions.tolist(), ends.tolist(), headers["crc"].tolist(), strict=True):
                if crc32c(data[position + CRC_START : end]) != crc:
                    raise CorruptRecords("a batch's checksum is wrong")

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def next_offset(self) -> int:
        """After the last whole batch, of which there is one at least. Gaps in compacted logs count as read."""
        last = self.headers[-1]
        return int(last["base_offset"]) + int(last["last_offset_delta"]) + 1

    def visible(self, aborted: Sequence[tuple[int, int]] | None) -> "NDArray[np.bool_]":
        """Which batches hold records for the reader. `aborted` has (producer id, first offset) of each transaction
        that was aborted, and is None for a reader of uncommitted data."""
        attributes = self.headers["attributes"]
        visible: NDArray[np.bool_] = (attributes & CONTROL == 0) & (self.headers["record_count"] > 0)
        if not aborted:
            return visible
        pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        cut_short: set[int] = set()
        for index in np.flatnonzero(attributes & TRANSACTIONAL).tolist():
            header = self.headers[index]
            last_offset = int(header["base_offset"]) + int(header["last_offset_delta"])
            while pending and pending[-1][1] <= last_offset:
                cut_short.add(pending.pop()[0])
            producer_id = int(header["producer_id"])
            if producer_id not in cut_short:
                continue
            if not header["attributes"] & CONTROL:
                visible[index] = False
            elif self._is_abort_marker(index):
                cut_short.discard(producer_id)
        return visible

    def _is_abort_marker(self, index: int) -> bool:
        # Length, attributes, timestamp delta, offset delta and key length of a control record take one byte each,
        # then come the key's version and its type.
        start = int(self.positions[index]) + HEADER_BYTES
        return bytes(self.data[start + 7 : start + 9]) == _ABORT_MARKER
