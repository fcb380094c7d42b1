"""What `record_kernel` does, with numpy alone: for machines without numba, and for reads too small to wait for it.

Where a record begins is only known from the one before, so that walk is plain Python; the fields of all records are
then read side by side.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_VARINT_BYTES_MAX = 10


def _walk(data: memoryview, start: int, end: int, count: int, out: list[int], ends: list[int]) -> bool:
    """Appends where each record's body starts and ends; False if the batch is not made of `count` whole records."""
    position = start
    for _ in range(count):
        if position >= end:
            return False
        byte = data[position]
        position += 1
        length = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            if position >= end or shift > 63:
                return False
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
        # A negative length is an odd zigzag number.
        if length & 1 or length < 2:
            return False
        out.append(position)
        position += length >> 1
        if position > end:
            return False
        ends.append(position)
    return position == end


def _varints(data: "NDArray[np.uint8]", positions: "Ints", ends: "Ints") -> tuple["Ints", "Ints"]:
    """(values, positions after them), one for each position; -1 as a position where a varint does not end in time."""
    last = len(data) - 1
    result = np.zeros(len(positions), np.int64)
    after = positions.copy()
    running = np.ones(len(positions), np.bool_)
    for index in range(_VARINT_BYTES_MAX):
        readable = running & (after < ends) & (after >= 0)
        after[running & ~readable] = -1
        running = readable
        byte = data[np.clip(after, 0, last)].astype(np.int64)
        result = np.where(running, result | ((byte & 0x7F) << (7 * index)), result)
        after = after + running
        running = running & (byte >= 0x80)
        if not running.any():
            break
    after[running] = -1
    return ((result >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(result & 1), after


def _after_bytes(lengths: "Ints", starts: "Ints", ends: "Ints") -> "Ints":
    """Where a nullable field of this length ends; -1 where it does not fit."""
    after = starts + np.maximum(lengths, 0)
    after[(starts < 0) | (lengths > ends - starts)] = -1
    return after


def _after_headers(data: "NDArray[np.uint8]", positions: "Ints", ends: "Ints", counts: "Ints") -> "Ints":
    after = positions.copy()
    after[(positions >= 0) & ((counts < 0) | (counts > ends - positions))] = -1
    left = np.where(after >= 0, counts, 0)
    while True:
        rows = np.flatnonzero(left > 0)
        if not len(rows):
            return after
        lengths, starts = _varints(data, after[rows], ends[rows])
        starts[lengths < 0] = -1
        lengths, starts = _varints(data, _after_bytes(lengths, starts, ends[rows]), ends[rows])
        after[rows] = _after_bytes(lengths, starts, ends[rows])
        left[rows] = np.where(after[rows] >= 0, left[rows] - 1, 0)


def parse(
    data: "NDArray[np.uint8]",
    starts: "Ints",
    ends: "Ints",
    counts: "Ints",
    base_offsets: "Ints",
    base_times: "Ints",
    append_times: "Ints",
    has_append_time: "NDArray[np.bool_]",
    first_offset: int,
    end_offset: int,
    offsets: "Ints",
    times: "Ints",
    key_slots: "NDArray[np.int32]",
    key_nulls: "NDArray[np.bool_]",
    value_slots: "NDArray[np.int32]",
    value_nulls: "NDArray[np.bool_]",
    header_starts: "Ints",
    header_counts: "Ints",
    kept: "Ints",
) -> int:
    """Fills the columns, see `record_columns.Parse`. The number of rows, or -1 - index of the first corrupt batch."""
    bodies: list[int] = []
    body_ends: list[int] = []
    view = memoryview(data)  # type: ignore[arg-type]
    spans = zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)
    for index, (start, end, count) in enumerate(spans):
        if not _walk(view, start, end, count, bodies, body_ends):
            return -1 - index
    if not bodies:
        return 0
    batches = np.repeat(np.arange(len(starts)), counts)
    stops = np.array(body_ends, np.int64)
    time_deltas, after = _varints(data, np.array(bodies, np.int64) + 1, stops)
    offset_deltas, after = _varints(data, after, stops)
    key_bytes, key_starts = _varints(data, after, stops)
    value_bytes, value_starts = _varints(data, _after_bytes(key_bytes, key_starts, stops), stops)
    found_headers, first_headers = _varints(data, _after_bytes(value_bytes, value_starts, stops), stops)
    broken = _after_headers(data, first_headers, stops, found_headers) != stops
    if broken.any():
        return -1 - int(batches[broken.argmax()])
    all_offsets = base_offsets[batches] + offset_deltas
    keep = (all_offsets >= first_offset) & (all_offsets < end_offset)
    rows = int(keep.sum())
    offsets[:rows] = all_offsets[keep]
    sent = np.where(has_append_time[batches], append_times[batches], base_times[batches] + time_deltas)
    times[:rows] = sent[keep]
    for slots, nulls, lengths, begins in (
        (key_slots, key_nulls, key_bytes[keep], key_starts[keep]),
        (value_slots, value_nulls, value_bytes[keep], value_starts[keep]),
    ):
        slots[0 : 2 * rows : 2] = begins
        slots[1 : 2 * rows : 2] = begins + np.maximum(lengths, 0)
        nulls[:rows] = lengths < 0
    header_starts[:rows] = first_headers[keep]
    header_counts[:rows] = found_headers[keep]
    kept[:] = np.bincount(batches[keep], minlength=len(starts))
    return rows


def parse_headers(
    data: "NDArray[np.uint8]",
    header_starts: "Ints",
    header_counts: "Ints",
    key_slots: "NDArray[np.int32]",
    value_slots: "NDArray[np.int32]",
    value_nulls: "NDArray[np.bool_]",
) -> int:
    """Of rows that `parse` has found to be sound. The number of headers."""
    positions = header_starts.copy()
    slots_before: Any = np.concatenate(([0], np.cumsum(header_counts)))
    end = np.full(len(positions), len(data), np.int64)
    for index in range(int(header_counts.max(initial=0))):
        rows = np.flatnonzero(header_counts > index)
        slots = slots_before[rows] + index
        key_bytes, key_starts = _varints(data, positions[rows], end[rows])
        value_bytes, value_starts = _varints(data, key_starts + key_bytes, end[rows])
        key_slots[2 * slots] = key_starts
        key_slots[2 * slots + 1] = key_starts + key_bytes
        value_slots[2 * slots] = value_starts
        value_slots[2 * slots + 1] = positions[rows] = value_starts + np.maximum(value_bytes, 0)
        value_nulls[slots] = value_bytes < 0
    return int(slots_before[-1])
