"""Records of many batches into columns, compiled by numba: tens of millions a second on one core.

`record_numpy` does the same without numba: same arguments, same columns, held together by a property test. Importing
this module imports numba, which takes a second; the first call on a machine compiles, which takes some more.

What is kept is kept for one signature only. numba's files are not made for processes that compile at once for several:
one may be given what another compiled for other types, and crash.
"""

from typing import Any

import numba

# For what only compiled code calls, with whatever types: it is kept as part of that.
inner = numba.njit(nogil=True)


def compiled(function: Any) -> Any:
    """Compiled code is kept beside the module, or in the user's cache directory where that cannot be written. For what
    Python calls, always with the same types."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to keep it: every process compiles for itself
        return inner(function)


@inner
def _varint(data: Any, position: Any, end: Any) -> Any:
    """(value, position after it); the position is -1 when it does not end before `end`, or within ten bytes."""
    if end - position >= 2:
        # Nearly all have one byte or two. Which of the two cannot be foretold where sizes vary: no branch on it.
        first = numba.int64(data[position])
        second = numba.int64(data[position + 1])
        goes_on = first >> 7
        if goes_on & (second >> 7) == 0:
            short = (first & 0x7F) | (((second & 0x7F) << 7) & -goes_on)
            return (short >> 1) ^ -(short & 1), position + 1 + goes_on
    result = 0
    shift = 0
    while position < end and shift <= 63:
        byte = numba.int64(data[position])
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((result >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(result & 1), position
        shift += 7
    return 0, -1


@inner
def _after_headers(data: Any, position: Any, end: Any, count: Any) -> Any:
    if count < 0 or count > end - position:
        return -1
    for _ in range(count):
        length, position = _varint(data, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        position += length
        length, position = _varint(data, position, end)
        if position < 0 or length > end - position:
            return -1
        if length > 0:
            position += length
    return position


@compiled
def _parse(
    data: Any,
    starts: Any,
    ends: Any,
    counts: Any,
    base_offsets: Any,
    base_times: Any,
    append_times: Any,
    has_append_time: Any,
    first_offset: Any,
    end_offset: Any,
    offsets: Any,
    times: Any,
    key_slots: Any,
    key_nulls: Any,
    value_slots: Any,
    value_nulls: Any,
    header_starts: Any,
    header_counts: Any,
    kept: Any,
) -> Any:
    row = 0
    for batch in range(len(starts)):
        position = starts[batch]
        batch_end = ends[batch]
        batch_row = row
        for _ in range(counts[batch]):
            length, position = _varint(data, position, batch_end)
            if position < 0 or length < 1 or length > batch_end - position:
                return -1 - batch
            end = position + length
            time_delta, position = _varint(data, position + 1, end)
            if position < 0:
                return -1 - batch
            offset_delta, position = _varint(data, position, end)
            if position < 0:
                return -1 - batch
            key_bytes, key_start = _varint(data, position, end)
            if key_start < 0 or key_bytes > end - key_start:
                return -1 - batch
            position = key_start + max(key_bytes, 0)
            value_bytes, value_start = _varint(data, position, end)
            if value_start < 0 or value_bytes > end - value_start:
                return -1 - batch
            position = value_start + max(value_bytes, 0)
            header_count, position = _varint(data, position, end)
            if position < 0:
                return -1 - batch
            header_start = position
            if header_count != 0:
                position = _after_headers(data, position, end, header_count)
            if position != end:
                return -1 - batch
            offset = base_offsets[batch] + offset_delta
            if first_offset <= offset < end_offset:
                offsets[row] = offset
                times[row] = append_times[batch] if has_append_time[batch] else base_times[batch] + time_delta
                key_slots[2 * row] = key_start
                key_slots[2 * row + 1] = key_start + max(key_bytes, 0)
                key_nulls[row] = key_bytes < 0
                value_slots[2 * row] = value_start
                value_slots[2 * row + 1] = value_start + max(value_bytes, 0)
                value_nulls[row] = value_bytes < 0
                header_starts[row] = header_start
                header_counts[row] = header_count
                row += 1
        if position != batch_end:
            return -1 - batch
        kept[batch] = row - batch_row
    return row


@compiled
def _parse_headers(
    data: Any, header_starts: Any, header_counts: Any, key_slots: Any, value_slots: Any, value_nulls: Any
) -> Any:
    end = len(data)
    slot = 0
    for row in range(len(header_starts)):
        position = header_starts[row]
        for _ in range(header_counts[row]):
            length, position = _varint(data, position, end)
            key_slots[2 * slot] = position
            position += length
            key_slots[2 * slot + 1] = position
            length, position = _varint(data, position, end)
            value_slots[2 * slot] = position
            position += max(length, 0)
            value_slots[2 * slot + 1] = position
            value_nulls[slot] = length < 0
            slot += 1
    return slot


def _unwritable(data: Any) -> Any:
    """Read-only is a type of its own to numba, and what was received may be either."""
    view = data.view()
    view.flags.writeable = False
    return view


def parse(data: Any, *arguments: Any) -> int:
    """Fills the columns, see `record_columns.Parse`. The number of rows, or -1 - index of the first corrupt batch."""
    return int(_parse(_unwritable(data), *arguments))


def parse_headers(data: Any, *arguments: Any) -> int:
    """Of rows that `parse` has found to be sound. The number of headers."""
    return int(_parse_headers(_unwritable(data), *arguments))
