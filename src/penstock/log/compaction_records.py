"""What compaction leaves of one batch: the same bytes without the records that go, all facts of its header kept.

Records keep their offsets and so their bytes: what stays is copied, not encoded anew. Only where a delete horizon is
set (KIP-534) must they change: it is kept in the base timestamp, from which records count theirs.
"""

from penstock.base.ports import Bytes
from penstock.log.compaction_map import Kept
from penstock.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    encode_batch,
)
from penstock.protocol.compression import compress, decompress
from penstock.protocol.records import read_varint, write_varint

# More than any batch that a broker took unpacks to.
_UNPACKED_BYTES_MAX = 1 << 30


def unpack(batch: Bytes, header: BatchHeader) -> bytes:
    """The records of a batch. Raises CorruptCompression."""
    return decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size], _UNPACKED_BYTES_MAX)


def rebuild(header: BatchHeader, data: bytes, kept: Kept, delete_horizon_ms: int | None = None) -> bytearray:
    """The batch with the records of it that stay, which are some; `delete_horizon_ms` is one to set."""
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = base_timestamp + kept.timestamp_delta_max
    records: Bytes = b"".join([data[start:end] for start, end in kept.spans])
    if delete_horizon_ms is not None:
        records = _with_base_timestamp(records, base_timestamp, delete_horizon_ms)
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON
    return encode_batch(
        compress(attributes & CODEC_MASK, records),
        record_count=kept.records,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def with_horizon(header: BatchHeader, data: bytes, delete_horizon_ms: int) -> bytearray:
    """The whole batch with a delete horizon."""
    everything = Kept(header.record_count, [(0, len(data))], header.max_timestamp - header.base_timestamp, False)
    return rebuild(header, data, everything, delete_horizon_ms)


def _with_base_timestamp(records: Bytes, old: int, new: int) -> bytearray:
    out = bytearray()
    position = 0
    while position < len(records):
        length, position = read_varint(records, position)
        end = position + length
        timestamp_delta, after_timestamp = read_varint(records, position + 1)
        body = bytearray(records[position : position + 1])
        write_varint(body, timestamp_delta + old - new)
        body += records[after_timestamp:end]
        write_varint(out, len(body))
        out += body
        position = end
    return out


def emptied(header: BatchHeader) -> bytearray:
    """The batch without records: what is left of a producer's last one, so that its sequence is not forgotten."""
    return encode_batch(
        b"",
        record_count=0,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
