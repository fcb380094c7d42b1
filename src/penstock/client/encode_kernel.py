"""Columns into the records section of a batch, and keys into partitions, compiled by numba."""

from typing import Any

import numba

from penstock.client.record_kernel import compiled, inner


@inner
def _varint_bytes(value: Any) -> Any:
    """How many bytes the zigzag varint takes."""
    rest = (value << 1) ^ (value >> 63)
    count = 1
    rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    while rest:
        rest >>= 7
        count += 1
    return count


@inner
def _put_varint(out: Any, position: Any, value: Any) -> Any:
    rest = (value << 1) ^ (value >> 63)
    while rest & ~numba.int64(0x7F):
        out[position] = (rest & 0x7F) | 0x80
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    out[position] = rest
    return position + 1


@inner
def _put_bytes(out: Any, position: Any, data: Any, start: Any, end: Any, is_null: Any) -> Any:
    if is_null:
        out[position] = 1  # zigzag of -1
        return position + 1
    position = _put_varint(out, position, end - start)
    # Copying slices would do the same and take five times as long to compile.
    for index in range(end - start):
        out[position + index] = data[start + index]
    return position + end - start


@inner
def _field_bytes(start: Any, end: Any, is_null: Any) -> Any:
    return 1 if is_null else _varint_bytes(end - start) + end - start


@compiled
def _encode(
    rows: Any,
    first: Any,
    out: Any,
    keys: Any,
    key_data: Any,
    key_nulls: Any,
    values: Any,
    value_data: Any,
    value_nulls: Any,
    headers: Any,
    names: Any,
    name_data: Any,
    header_values: Any,
    header_data: Any,
    header_nulls: Any,
) -> Any:
    position = 0
    count = 0
    for index in range(first, len(rows)):
        row = rows[index]
        size = 2 + _varint_bytes(count)
        size += _field_bytes(keys[row], keys[row + 1], key_nulls[row])
        size += _field_bytes(values[row], values[row + 1], value_nulls[row])
        size += _varint_bytes(headers[row + 1] - headers[row])
        for header in range(headers[row], headers[row + 1]):
            size += _field_bytes(names[header], names[header + 1], False)
            size += _field_bytes(header_values[header], header_values[header + 1], header_nulls[header])
        if position + _varint_bytes(size) + size > len(out):
            break
        position = _put_varint(out, position, size)
        out[position] = 0  # attributes
        out[position + 1] = 0  # all records of a batch are of one moment
        position = _put_varint(out, position + 2, count)
        position = _put_bytes(out, position, key_data, keys[row], keys[row + 1], key_nulls[row])
        position = _put_bytes(out, position, value_data, values[row], values[row + 1], value_nulls[row])
        position = _put_varint(out, position, headers[row + 1] - headers[row])
        for header in range(headers[row], headers[row + 1]):
            position = _put_bytes(out, position, name_data, names[header], names[header + 1], False)
            is_null = header_nulls[header]
            start, end = header_values[header], header_values[header + 1]
            position = _put_bytes(out, position, header_data, start, end, is_null)
        count += 1
    return count, position


@inner
def _murmur2(data: Any, start: Any, end: Any) -> Any:
    multiplier = numba.int64(0x5BD1E995)
    mask = numba.int64(0xFFFFFFFF)
    length = end - start
    hash_ = numba.int64(0x9747B28C) ^ length
    position = start
    while position + 4 <= end:
        word = numba.int64(data[position]) | numba.int64(data[position + 1]) << 8
        word |= numba.int64(data[position + 2]) << 16 | numba.int64(data[position + 3]) << 24
        word = (word * multiplier) & mask
        word = ((word ^ (word >> 24)) * multiplier) & mask
        hash_ = ((hash_ * multiplier) & mask) ^ word
        position += 4
    if position < end:
        for index in range(end - position):
            hash_ ^= numba.int64(data[position + index]) << (8 * index)
        hash_ = (hash_ * multiplier) & mask
    hash_ = ((hash_ ^ (hash_ >> 13)) * multiplier) & mask
    return (hash_ ^ (hash_ >> 15)) & 0x7FFFFFFF


@compiled
def _partitions(keys: Any, key_data: Any, partition_count: Any, out: Any) -> Any:
    for row in range(len(out)):
        out[row] = _murmur2(key_data, keys[row], keys[row + 1]) % partition_count


def encode(*arguments: Any) -> tuple[int, int]:
    """(rows that fitted, bytes they took); see `record_encoding`."""
    count, size = _encode(*arguments)
    return int(count), int(size)


def hash_partitions(keys: Any, key_data: Any, partition_count: int, out: Any) -> None:
    """Java's default partitioner, for keys that are not null."""
    _partitions(keys, key_data, partition_count, out)
