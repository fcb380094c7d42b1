"""The loops over records that compaction spends its time in.

Plain functions over bytes and numbers, which run as they are, and some ten times as fast once `compaction_native` has
compiled them; hence no objects, no exceptions of ours, and bytes taken apart by hand. Callers reach them as attributes
of this module, after `as_bytes` and `as_numbers` have given their arguments the form that the compiled ones take.

Most varints have one byte, and a call costs Python more than all the rest of it: so that case stands where it is met.

A record: length, attributes (int8), timestamp delta, offset delta, key, value, headers. Lengths and deltas are zigzag
varints, so an odd length is that of a null.
"""

from array import array
from typing import Any

from penstock.base.ports import Bytes

# What became of the record at an offset: there is none, or it has no key, or a later one has the same; it is the last
# of its key; the same, and it is a tombstone.
GONE, LAST, LAST_TOMBSTONE = 0, 1, 2

# How mapping ended.
MAPPED, FULL, CORRUPT = 0, 1, 2


def as_bytes(data: Bytes) -> Any:
    return data


def as_numbers(data: "array[int]") -> Any:
    return data


def key_hashes(records: Any, start: int, end: int) -> tuple[int, int]:
    """128 bits that stand for the key."""
    key = bytes(records[start:end])
    return hash(key), hash(b"\0" + key)


def varint(data: Any, position: int) -> tuple[int, int]:
    """(value before zigzag is undone, position after it). A position beyond the data says that it is no varint."""
    value = 0
    shift = 0
    size = len(data)
    while position < size:
        byte = int(data[position])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            break
    return 0, size + 1


def find(records: Any, start: int, end: int, table: Any, slots: int) -> tuple[int, int, int]:
    """(slot of a key, or the empty one where it belongs; the two hashes)."""
    first_hash, second_hash = key_hashes(records, start, end)
    slot = first_hash % slots
    while table[3 * slot] != 0 and (table[3 * slot + 1] != first_hash or table[3 * slot + 2] != second_hash):
        slot = (slot + second_hash % (slots - 1) + 1) % slots
    return slot, first_hash, second_hash


def map_records(
    records: Any, count: int, relative_base: int, table: Any, slots: int, fates: Any, keys: int, keys_max: int
) -> tuple[int, int, int, bool]:
    """Notes where keys stand last. (How it ended, keys in the table, the relative offset that did not fit, whether a
    tombstone was seen.) A slot of the table is: relative offset plus one, 0 where it is empty; two hashes."""
    size = len(records)
    offsets = len(fates)
    position = 0
    has_tombstones = False
    for _ in range(count):
        if position < size and records[position] < 0x80:
            length = records[position]
            position += 1
        else:
            length, position = varint(records, position)
        end = position + (length >> 1)
        position += 1
        if position < size and records[position] < 0x80:
            position += 1
        else:
            _, position = varint(records, position)
        if position < size and records[position] < 0x80:
            delta = records[position]
            position += 1
        else:
            delta, position = varint(records, position)
        if position < size and records[position] < 0x80:
            key_length = records[position]
            position += 1
        else:
            key_length, position = varint(records, position)
        relative = relative_base + (delta >> 1)
        if position < end <= size and relative >= offsets:
            # Also where it has no key: what counts as mapped must have a fate.
            return FULL, keys, relative, has_tombstones
        if key_length & 1 == 0 and position <= size:
            key_end = position + (key_length >> 1)
            if key_end >= end or end > size:
                return CORRUPT, keys, 0, has_tombstones
            # A negative one was mapped by the pass before.
            if relative >= 0:
                slot, first_hash, second_hash = find(records, position, key_end, table, slots)
                seen = table[3 * slot]
                if seen != 0:
                    fates[seen - 1] = GONE
                elif keys >= keys_max:
                    return FULL, keys, relative, has_tombstones
                else:
                    keys += 1
                    table[3 * slot + 1] = first_hash
                    table[3 * slot + 2] = second_hash
                table[3 * slot] = relative + 1
                if records[key_end] == 1:
                    has_tombstones = True
                    fates[relative] = LAST_TOMBSTONE
                else:
                    fates[relative] = LAST
        elif position >= end or end > size:
            return CORRUPT, keys, 0, has_tombstones
        position = end
    return MAPPED if position == size else CORRUPT, keys, 0, has_tombstones


def keep_mapped(
    records: Any, count: int, relative_base: int, fates: Any, tombstones_go: bool, spans: Any
) -> tuple[int, int, int, bool]:
    """What stays of a batch that is wholly mapped: no key need be looked at. (Records, spans of bytes that hold them,
    the largest timestamp delta, whether there is a tombstone.) -1 records: it is corrupt."""
    size = len(records)
    position = 0
    kept = 0
    span = -1
    span_end = -1
    delta_max = -(1 << 62)
    has_tombstones = False
    for _ in range(count):
        start = position
        if position < size and records[position] < 0x80:
            length = records[position]
            position += 1
        else:
            length, position = varint(records, position)
        end = position + (length >> 1)
        position += 1
        if position < size and records[position] < 0x80:
            timestamp_delta = records[position]
            position += 1
        else:
            timestamp_delta, position = varint(records, position)
        if position < size and records[position] < 0x80:
            delta = records[position]
            position += 1
        else:
            delta, position = varint(records, position)
        relative = relative_base + (delta >> 1)
        if position >= end or end > size or relative < 0 or relative >= len(fates):
            return -1, 0, 0, False
        fate = fates[relative]
        if fate == LAST or (fate == LAST_TOMBSTONE and not tombstones_go):
            kept += 1
            has_tombstones = has_tombstones or fate == LAST_TOMBSTONE
            timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
            delta_max = max(delta_max, timestamp_delta)
            if start != span_end:
                span += 1
                spans[2 * span] = start
            span_end = end
            spans[2 * span + 1] = end
        position = end
    return kept if position == size else -1, span + 1, delta_max, has_tombstones


def keep_any(
    records: Any,
    count: int,
    relative_base: int,
    relative_end: int,
    table: Any,
    slots: int,
    tombstones_go: bool,
    spans: Any,
) -> tuple[int, int, int, bool]:
    """The same for a batch from before the mapped part, which ends at `relative_end`, or one that reaches beyond."""
    size = len(records)
    position = 0
    kept = 0
    span = -1
    span_end = -1
    delta_max = -(1 << 62)
    has_tombstones = False
    for _ in range(count):
        start = position
        if position < size and records[position] < 0x80:
            length = records[position]
            position += 1
        else:
            length, position = varint(records, position)
        end = position + (length >> 1)
        position += 1
        if position < size and records[position] < 0x80:
            timestamp_delta = records[position]
            position += 1
        else:
            timestamp_delta, position = varint(records, position)
        if position < size and records[position] < 0x80:
            delta = records[position]
            position += 1
        else:
            delta, position = varint(records, position)
        if position < size and records[position] < 0x80:
            key_length = records[position]
            position += 1
        else:
            key_length, position = varint(records, position)
        relative = relative_base + (delta >> 1)
        key_end = position + (key_length >> 1) if key_length & 1 == 0 else position
        if key_end >= end or end > size:
            return -1, 0, 0, False
        is_tombstone = records[key_end] == 1
        stays = True
        if relative < relative_end:
            if key_length & 1 or (is_tombstone and tombstones_go):
                stays = False
            else:
                slot, _, _ = find(records, position, key_end, table, slots)
                stays = table[3 * slot] - 1 <= relative or table[3 * slot] == 0
        if stays:
            kept += 1
            has_tombstones = has_tombstones or is_tombstone
            timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
            delta_max = max(delta_max, timestamp_delta)
            if start != span_end:
                span += 1
                spans[2 * span] = start
            span_end = end
            spans[2 * span + 1] = end
        position = end
    return kept if position == size else -1, span + 1, delta_max, has_tombstones
