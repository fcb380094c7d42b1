"""The records inside a batch: for compaction, lookups by time, tools and tests. The hot path never comes here.

Each record: length, attributes (int8), timestamp delta, offset delta, key, value, headers; lengths and deltas are
zigzag varints, a length of -1 is null.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.base.ports import Bytes
from penstock.protocol.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, encode_batch
from penstock.protocol.compression import compress, decompress

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class CorruptRecords(ValueError):
    """The records section does not hold what the batch header says."""


def write_varint(out: bytearray, value: int) -> None:
    """Zigzag, as Java's ByteUtils.writeVarint/Varlong."""
    value = (value << 1) ^ (value >> 63)
    while value & ~0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """(value, position after it)."""
    shift = 0
    result = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            raise CorruptRecords("a varint is longer than ten bytes")


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


# Lengths and deltas are nearly always among these.
_VARINTS = [_varint(value) for value in range(4096)]


def encode_pairs(pairs: Sequence[tuple[bytes, bytes | None]]) -> bytearray:
    """The records section for these keys and values, all of one time and without headers: what coordinators write."""
    small, small_end = _VARINTS, len(_VARINTS)
    out = bytearray()
    for delta, (key, value) in enumerate(pairs):
        key_bytes = len(key)
        value_bytes = -1 if value is None else len(value)
        if max(delta, key_bytes + value_bytes + 12) >= small_end or value is None:
            out += encode_records((Record(delta, 0, key, value),), 0, 0)
            continue
        delta_varint, key_varint, value_varint = small[delta], small[key_bytes], small[value_bytes]
        # Attributes and the timestamp's delta before them, the number of headers after them.
        size = 3 + len(delta_varint) + len(key_varint) + key_bytes + len(value_varint) + value_bytes
        out += b"".join((small[size], b"\0\0", delta_varint, key_varint, key, value_varint, value, b"\0"))
    return out


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytearray:
    out = bytearray()
    for record in records:
        body = bytearray(1)
        write_varint(body, record.timestamp - base_timestamp)
        write_varint(body, record.offset - base_offset)
        _write_bytes(body, record.key)
        _write_bytes(body, record.value)
        write_varint(body, len(record.headers))
        for name, value in record.headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, value)
        write_varint(out, len(body))
        out += body
    return out


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = 0,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch of records whose offsets ascend; its base offset is the first record's."""
    base_offset = records[0].offset
    base_timestamp = records[0].timestamp
    return encode_batch(
        compress(codec, encode_records(records, base_offset, base_timestamp)),
        record_count=len(records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes | codec,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def iterate_records(batch: Bytes, header: BatchHeader, *, size_max: int = 1 << 30) -> Iterator[Record]:
    """The records of one whole batch. Raises CorruptRecords; decompresses to `size_max` bytes at the most."""
    return unpacked_records(decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size], size_max), header)


def unpacked_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The same from a records section that is unpacked already."""
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > len(data):
                raise CorruptRecords("a record is longer than its batch")
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            key, position = _read_bytes(data, position, end)
            value, position = _read_bytes(data, position, end)
            headers, position = _read_headers(data, position, end)
            if position != end:
                raise CorruptRecords("a record's fields do not add up to its length")
            yield Record(
                header.base_offset + offset_delta,
                header.base_timestamp + timestamp_delta if append_time is None else append_time,
                key,
                value,
                headers,
            )
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptRecords("a record is cut short or not text where it must be") from error
    if position != len(data):
        raise CorruptRecords("bytes are left over after the last record")


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
    else:
        write_varint(out, len(value))
        out += value


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptRecords("a key, value or header is longer than its record")
    return bytes(data[position : position + length]), position + length


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    if count < 0 or count > end - position:
        raise CorruptRecords("a record has more headers than bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise CorruptRecords("a header has no name")
        value, position = _read_bytes(data, position, end)
        headers.append((name.decode(), value))
    return tuple(headers), position
