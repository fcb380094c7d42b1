"""The last offset of each key in the part of a log that has not been compacted yet, in a fixed amount of memory.

A table of 24 bytes a slot, as Kafka's: where the key was last seen, and 128 bits of hash that stand for the key. Beside
it one byte for each offset says whether the record there is the last of its key. So batches that were mapped need not
be opened again: what stays of them can be counted. When either is full the pass ends there, and the next one goes on
from that offset.
"""

from array import array
from typing import NamedTuple

from penstock.base.ports import Bytes
from penstock.log import compaction_kernels as kernels
from penstock.log.compaction_kernels import LAST, LAST_TOMBSTONE
from penstock.protocol.batch import BatchHeader
from penstock.protocol.records import CorruptRecords

SLOT_BYTES = 24
# The share of the memory that goes to the bytes by offset.
_FATES_SHARE = 8
_SLOTS_MIN = 11


class Kept(NamedTuple):
    """The records of a batch that stay."""

    records: int
    # Their bytes, from and to, among the unpacked records.
    spans: list[tuple[int, int]]
    timestamp_delta_max: int
    has_tombstones: bool


class OffsetMap:
    def __init__(self, start_offset: int, end_offset: int, memory_bytes: int, load_factor: float) -> None:
        """For the records of [start_offset, end_offset), or as many of them as fit."""
        # A table that is quite full would be searched for ever.
        load_factor = min(max(load_factor, 0.1), 0.95)
        offsets = max(0, min(end_offset - start_offset, memory_bytes // _FATES_SHARE))
        slots_max = (memory_bytes - offsets) // SLOT_BYTES
        self._slots = _prime_at_most(max(_SLOTS_MIN, min(slots_max, int(offsets / load_factor * 1.5))))
        self.keys_max = max(1, int(self._slots * load_factor))
        self.start_offset = start_offset
        # The offset after the last record that was mapped.
        self.end_offset = start_offset
        self.keys = 0
        self._has_tombstones = False
        self._fates_bytes = bytearray(offsets)
        self._fates = kernels.as_bytes(self._fates_bytes)
        self._numbers = kernels.as_numbers(array("q", [0]) * (3 * self._slots))
        self._spans = array("q")

    @property
    def utilization(self) -> float:
        return self.keys / self.keys_max

    def add(self, records: Bytes, count: int, base_offset: int) -> bool:
        """Maps the records of a batch, unpacked. False when one does not fit: `end_offset` is that one's. Raises
        CorruptRecords."""
        end, self.keys, relative, has_tombstones = kernels.map_records(
            kernels.as_bytes(records),
            count,
            base_offset - self.start_offset,
            self._numbers,
            self._slots,
            self._fates,
            self.keys,
            self.keys_max,
        )
        if end == kernels.CORRUPT:
            raise CorruptRecords("the records do not add up to their batch")
        self._has_tombstones |= has_tombstones
        if end == kernels.FULL:
            self.end_offset = self.start_offset + relative
            return False
        return True

    def keep(self, records: Bytes, header: BatchHeader, *, tombstones_go: bool) -> Kept:
        """What stays of a batch, unpacked. Raises CorruptRecords."""
        count = header.record_count
        if len(self._spans) < 2 * count:
            self._spans = array("q", [0]) * (2 * count)
        data = kernels.as_bytes(records)
        spans = kernels.as_numbers(self._spans)
        relative_base = header.base_offset - self.start_offset
        if self.holds(header):
            found = kernels.keep_mapped(data, count, relative_base, self._fates, tombstones_go, spans)
        else:
            relative_end = self.end_offset - self.start_offset
            found = kernels.keep_any(
                data, count, relative_base, relative_end, self._numbers, self._slots, tombstones_go, spans
            )
        records_kept, span_count, timestamp_delta_max, has_tombstones = found
        if records_kept < 0:
            raise CorruptRecords("the records do not add up to their batch")
        flat = self._spans[: 2 * span_count].tolist()
        return Kept(records_kept, list(zip(flat[::2], flat[1::2], strict=True)), timestamp_delta_max, has_tombstones)

    def holds(self, header: BatchHeader) -> bool:
        """Whether all of a batch is in the mapped part."""
        return header.base_offset >= self.start_offset and header.last_offset < self.end_offset

    def counts(self, base_offset: int, last_offset: int) -> tuple[int, int]:
        """How many records of a batch that was wholly mapped stay: values, tombstones."""
        start, end = base_offset - self.start_offset, last_offset + 1 - self.start_offset
        values = self._fates_bytes.count(LAST, start, end)
        return values, self._fates_bytes.count(LAST_TOMBSTONE, start, end) if self._has_tombstones else 0


def _prime_at_most(number: int) -> int:
    """So that every step size visits every slot."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
