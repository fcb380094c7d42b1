"""The record batch, magic 2: the unit that is produced, stored, replicated and fetched, and never rewritten.

base offset            int64   0   patched by the broker on append
batch length           int32   8   bytes after this field
partition leader epoch int32  12   patched by the broker on append
magic                  int8   16   2
crc-32c                uint32 17   of everything from attributes on, so the two patches above do not touch it
attributes             int16  21   0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
last offset delta      int32  23
base timestamp         int64  27
max timestamp          int64  35
producer id            int64  43
producer epoch         int16  51
base sequence          int32  53
record count           int32  57
records                       61   compressed as a whole
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.base.ports import Bytes

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size  # 61
# Base offset and length: what comes before the bytes that `batch length` counts.
PREFIX_BYTES = 12
CRC_START = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

_new_tuple = tuple.__new__
_PLACEMENT = Struct(">qii")
_PATCH_CRC = Struct(">I")
_PATCH_ATTRIBUTES = Struct(">h")
_PATCH_MAX_TIMESTAMP = Struct(">q")


class BatchHeader(NamedTuple):
    """The 61 bytes, decoded. A tuple because making one is on the hot path."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def read_header(data: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller has made sure that HEADER_BYTES are there."""
    # Hot: this is BatchHeader._make without its second look at the length.
    return _new_tuple(BatchHeader, HEADER.unpack_from(data, position))


def crc_is_valid(data: Bytes, header: BatchHeader, position: int = 0) -> bool:
    view = memoryview(data)[position + CRC_START : position + header.size]
    return bool(crc32c(view) == header.crc)


def patch_placement(data: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Writes where the whole batch `data` came to stand. Neither field is under the CRC."""
    # Hot: with the length between the two written anew, it is one call.
    _PLACEMENT.pack_into(data, 0, base_offset, len(data) - PREFIX_BYTES, leader_epoch)


def patch_placements(
    batches: Iterable[memoryview], base_offsets: Iterable[int], lengths: Iterable[int], leader_epoch: int
) -> None:
    """The same, of one after the other."""
    write = _PLACEMENT.pack_into
    for batch, base_offset, length in zip(batches, base_offsets, lengths, strict=True):
        write(batch, 0, base_offset, length, leader_epoch)


def patch_times(data: bytearray | memoryview, attributes: int, max_timestamp: int) -> None:
    """Changes what the batch says of its time; that is under the CRC, which is made anew."""
    _PATCH_ATTRIBUTES.pack_into(data, CRC_START, attributes)
    _PATCH_MAX_TIMESTAMP.pack_into(data, 35, max_timestamp)
    _PATCH_CRC.pack_into(data, 17, crc32c(memoryview(data)[CRC_START:]))


def encode_batch(
    records: Bytes,
    *,
    record_count: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = NO_TIMESTAMP,
    max_timestamp: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch around `records`: the records section as it goes on the wire, compressed if `attributes` says so."""
    batch = bytearray(HEADER_BYTES + len(records))
    if last_offset_delta is None:
        last_offset_delta = record_count - 1
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - PREFIX_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch[HEADER_BYTES:] = records
    _PATCH_CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch
