"""Protobuf messages into slots of columns, compiled by numba: what `protobuf_program` says, for all rows of a batch.

The last value of a field counts, messages that come twice are merged, fields that are not known are passed over. A row
with anything that is not plain is left alone, and told.
"""

from typing import Any

import numba
import numpy as np

from penstock.pipeline.schemas import protobuf_program as program
from penstock.pipeline.schemas.column_kernel import (
    BAD,
    NO_ROOM,
    compiled,
    inlined,
    is_text,
    little_endian,
    take_back,
    varint,
)

# numba takes globals as constants.
_UINT32, _SINT32, _INT32, _SINT64 = program.UINT32, program.SINT32, program.INT32, program.SINT64
_BOOL, _CHOICE, _RANGED = program.BOOL, program.CHOICE, program.RANGED
_FIXED32, _SFIXED32, _FIXED64 = program.FIXED32, program.SFIXED32, program.FIXED64
_TEXT, _MESSAGE = program.TEXT, program.MESSAGE
_OPERATION, _COLUMN, _LEVEL, _ARGUMENT = program.OPERATION, program.COLUMN, program.LEVEL, program.ARGUMENT
_LIST_COLUMN, _LIST_LEVEL, _IS_REPEATED = program.LIST_COLUMN, program.LIST_LEVEL, program.IS_REPEATED
_ONEOF_COLUMN, _NUMBER, _ROOT_COLUMN = program.ONEOF_COLUMN, program.NUMBER, program.ROOT_COLUMN
# An open message: where it ends, and where its fields stand in the table.
_END, _FIELDS = range(2)
_TAG_MAX = 2**32 - 1


@inlined
def _wire_type(operation: Any) -> Any:
    if operation <= _RANGED:
        return 0
    if operation <= _SFIXED32:
        return 5
    return 1 if operation == _FIXED64 else 2


@inlined
def _after_unknown(data: Any, wire_type: Any, position: Any, end: Any) -> Any:
    if wire_type == 0:
        _, position = varint(data, position, end)
        return position
    size = numba.int64(8 if wire_type == 1 else 4)
    if wire_type == 2:
        size, position = varint(data, position, end)
    elif wire_type != 1 and wire_type != 5:
        return BAD
    if position < 0 or size < 0 or size > end - position:
        return BAD
    return position + size


@inlined
def _number(operation: Any, argument: Any, table: Any, data: Any, position: Any, end: Any) -> Any:
    """(value, position after it, or -1.)"""
    if operation > _RANGED:
        size = 8 if operation == _FIXED64 else 4
        if size > end - position:
            return 0, -1
        value = little_endian(data, position, size)
        if operation == _SFIXED32:
            value = (value ^ 0x80000000) - 0x80000000
        return value, position + size
    value, position = varint(data, position, end)
    if operation == _INT32:
        value = ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    elif operation == _UINT32:
        value &= 0xFFFFFFFF
    elif operation == _SINT32:
        value = ((value & 0xFFFFFFFF) >> 1) ^ -(value & 1)
    elif operation == _SINT64:
        value = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
    elif operation == _BOOL:
        value = 1 if value != 0 else 0
    elif operation == _CHOICE:
        if value < 0 or value >= table[argument] or table[argument + 1 + value] == 0:
            return 0, -1
    elif operation == _RANGED and (value < table[argument] or value > table[argument + 1]):
        return 0, -1
    return value, position


@inlined
def _slot(fields: Any, field: Any, bases: Any, capacities: Any, counts: Any, index: Any, values: Any) -> Any:
    """Where its value goes: for an item, the next of its list. -1 if nowhere, NO_ROOM if there is none."""
    column, level = fields[field, _COLUMN], fields[field, _LEVEL]
    if column < 0:
        return -1
    if fields[field, _IS_REPEATED] == 1:
        if counts[level] == capacities[level]:
            return NO_ROOM
        index[level] = counts[level]
        counts[level] += 1
        values[bases[fields[field, _LIST_COLUMN]] + index[fields[field, _LIST_LEVEL]]] += 1
    return bases[column] + index[level]


@inlined
def _is_other_member(fields: Any, field: Any, bases: Any, index: Any, values: Any) -> Any:
    """Of a oneof of which another one is set."""
    column = fields[field, _ONEOF_COLUMN]
    if column < 0:
        return False
    # A oneof has no lists: it is of its field's level.
    slot = bases[column] + index[fields[field, _LEVEL]]
    before = values[slot]
    values[slot] = fields[field, _NUMBER]
    return before != 0 and before != fields[field, _NUMBER]


@inlined
def _after_numbers(
    fields: Any,
    field: Any,
    table: Any,
    data: Any,
    position: Any,
    end: Any,
    is_packed: Any,
    bases: Any,
    capacities: Any,
    counts: Any,
    index: Any,
    values: Any,
    is_set: Any,
) -> Any:
    """One, or all that are packed up to the end."""
    while True:
        if is_packed and position == end:
            return position
        slot = _slot(fields, field, bases, capacities, counts, index, values)
        if slot == NO_ROOM:
            return NO_ROOM
        value, position = _number(fields[field, _OPERATION], fields[field, _ARGUMENT], table, data, position, end)
        if position < 0:
            return BAD
        if slot >= 0:
            values[slot] = value
            is_set[slot] = 1
        if not is_packed:
            return position


@inlined
def _row(
    fields: Any,
    table: Any,
    data: Any,
    position: Any,
    end: Any,
    stack: Any,
    bases: Any,
    capacities: Any,
    counts: Any,
    index: Any,
    values: Any,
    is_set: Any,
) -> Any:
    """The position after it."""
    depth = 0
    stack[0, _END] = end
    stack[0, _FIELDS] = 0
    while True:
        end = stack[depth, _END]
        if position == end:
            if depth == 0:
                return position
            depth -= 1
            continue
        tag, position = varint(data, position, end)
        number, wire_type = tag >> 3, tag & 7
        if position < 0 or number <= 0 or tag > _TAG_MAX:
            return BAD
        known = stack[depth, _FIELDS]
        field = table[known + 1 + number] if number <= table[known] else -1
        if field < 0:
            position = _after_unknown(data, wire_type, position, end)
            if position < 0:
                return BAD
            continue
        operation = fields[field, _OPERATION]
        is_packed = wire_type == 2 and operation <= _FIXED64 and fields[field, _IS_REPEATED] == 1
        if wire_type != _wire_type(operation) and not is_packed:
            return BAD
        if _is_other_member(fields, field, bases, index, values):
            return BAD
        if wire_type == 2:
            size, position = varint(data, position, end)
            if position < 0 or size < 0 or size > end - position:
                return BAD
            end = position + size
        if operation <= _FIXED64:
            position = _after_numbers(
                fields, field, table, data, position, end, is_packed, bases, capacities, counts, index, values, is_set
            )
            if position < 0:
                return position
            continue
        slot = _slot(fields, field, bases, capacities, counts, index, values)
        if slot == NO_ROOM:
            return NO_ROOM
        if slot >= 0:
            is_set[slot] = 1
        if operation == _MESSAGE:
            depth += 1
            stack[depth, _END] = end
            stack[depth, _FIELDS] = fields[field, _ARGUMENT]
            continue
        if operation == _TEXT and not is_text(data, position, end):
            return BAD
        if slot >= 0:
            values[slot] = position
            values[slot + capacities[fields[field, _LEVEL]]] = end - position
        position = end


@compiled
def _fill(
    fields: Any,
    table: Any,
    prefix: Any,
    stack: Any,
    index: Any,
    before: Any,
    data: Any,
    starts: Any,
    ends: Any,
    first_row: Any,
    levels: Any,
    bases: Any,
    capacities: Any,
    counts: Any,
    values: Any,
    is_set: Any,
    is_bad: Any,
) -> Any:
    for row in range(first_row, len(starts)):
        start, end = starts[row], ends[row]
        if start < 0:
            continue
        index[0] = row
        for level in range(len(counts)):
            before[level] = counts[level]
        reached = numba.int64(BAD if end - start < len(prefix) else 0)
        for place in range(len(prefix)):
            if reached == 0 and data[start + place] != prefix[place]:
                reached = numba.int64(BAD)
        if reached == 0:
            is_set[bases[_ROOT_COLUMN] + row] = 1
            start += len(prefix)
            reached = _row(fields, table, data, start, end, stack, bases, capacities, counts, index, values, is_set)
        if reached < 0:
            take_back(levels, bases, counts, row, before, values, is_set)
            if reached == NO_ROOM:
                return row
            is_bad[row] = True
    return len(starts)


def fill(
    fields: Any,
    table: Any,
    prefix: Any,
    depth_max: int,
    data: Any,
    starts: Any,
    ends: Any,
    row: int,
    slots: Any,
    is_bad: Any,
) -> int:
    """See `column_reading.Program`."""
    levels = len(slots.counts)
    stack, index, before = np.zeros((depth_max, 2), np.int64), np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    room = (slots.levels, slots.bases, slots.capacities, slots.counts, slots.values, slots.is_set)
    return int(_fill(fields, table, prefix, stack, index, before, data, starts, ends, row, *room, is_bad))
