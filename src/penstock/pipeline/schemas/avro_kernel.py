"""Rows of bytes into slots of columns, compiled by numba: what `avro_program` says, for all rows of a batch.

A row that is not exactly what its program says is left alone, and told.
"""

from typing import Any

import numba
import numpy as np

from penstock.pipeline.schemas import avro_program
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
_RANGED, _BOOLEAN, _FLOAT = avro_program.RANGED, avro_program.BOOLEAN, avro_program.FLOAT
_DOUBLE, _TEXT, _FIXED = avro_program.DOUBLE, avro_program.TEXT, avro_program.FIXED
_CHOICE, _DECIMAL_BYTES = avro_program.CHOICE, avro_program.DECIMAL_BYTES
_STRUCT, _UNION, _JUMP = avro_program.STRUCT, avro_program.UNION, avro_program.JUMP
_LIST, _END = avro_program.LIST, avro_program.END
_ITEM_LEVEL, _KEY_COLUMN, _AFTER = avro_program.ITEM_LEVEL, avro_program.KEY_COLUMN, avro_program.AFTER
# An open list: where its items' code starts, items left in its block, its place in the table, its slot.
_BODY, _LEFT, _PLACE, _SLOT = range(4)
# Maps with more keys are not searched for keys that come twice: they are left to the rows' way.
_KEYS_MAX = 64


@inlined
def _varint(data: Any, position: Any, end: Any) -> Any:
    """(zigzag value, position after it); the position is -1 when it is not there."""
    value, position = varint(data, position, end)
    return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), position


@compiled
def _decimal(data: Any, position: Any, size: Any, high_end: Any, low_end: Any) -> Any:
    """(high half, low half, whether it is between -end and end.)"""
    high = numba.int64(-1 if size > 0 and data[position] & 0x80 else 0)
    low = numba.uint64(numba.int64(high))
    for place in range(position, position + size):
        high = (high << 8) | numba.int64(low >> numba.uint64(56))
        low = (low << numba.uint64(8)) | numba.uint64(data[place])
    high_size, low_size = high, low
    if high < 0:
        low_size = ~low + numba.uint64(1)
        high_size = ~high + (1 if low_size == 0 else 0)
    low_limit = numba.uint64(low_end)
    is_inside = high_size >= 0 and (high_size < high_end or (high_size == high_end and low_size < low_limit))
    return high, numba.int64(low), is_inside


@inlined
def _bytes_leaf(operation: Any, argument: Any, table: Any, data: Any, position: Any, end: Any) -> Any:
    """(start, length), the length -1 if they are not there."""
    size = argument if operation == _FIXED else -1
    if operation == _DECIMAL_BYTES:
        size = table[argument]
    if size < 0:
        size, position = _varint(data, position, end)
        if position < 0 or size < 0:
            return 0, -1
    if size > end - position or (operation == _TEXT and not is_text(data, position, position + size)):
        return 0, -1
    return position, size


@inlined
def _leaf(
    operation: Any, argument: Any, table: Any, data: Any, position: Any, end: Any, values: Any, slot: Any, width: Any
) -> Any:
    """The position after it."""
    value = numba.int64(0)
    if operation <= _CHOICE:
        value, position = _varint(data, position, end)
        if position < 0:
            return BAD
        if operation == _RANGED:
            if value < table[argument] or value > table[argument + 1]:
                return BAD
            value *= table[argument + 2]
        elif operation == _CHOICE and (value < 0 or value >= table[argument] or table[argument + 1 + value] == 0):
            return BAD
    elif operation <= _DOUBLE:
        size = 1 if operation == _BOOLEAN else 4 if operation == _FLOAT else 8
        if size > end - position:
            return BAD
        if operation == _DOUBLE:
            value = little_endian(data, position, 8)
        else:
            value = little_endian(data, position, size)
        position += size
    else:
        start, size = _bytes_leaf(operation, argument, table, data, position, end)
        if size < 0:
            return BAD
        position = start + size
        value, second = start, size
        if operation == _DECIMAL_BYTES:
            if size > 16:
                return BAD
            second, value, is_inside = _decimal(data, start, size, table[argument + 1], table[argument + 2])
            if not is_inside:
                return BAD
        if slot >= 0:
            values[slot + width] = second
    if slot >= 0:
        values[slot] = value
    return position


@compiled
def _has_key_twice(data: Any, values: Any, first: Any, width: Any, count: Any) -> Any:
    for one in range(first + 1, first + count):
        size = values[one + width]
        for other in range(first, one):
            if values[other + width] != size:
                continue
            place = 0
            while place < size and data[values[one] + place] == data[values[other] + place]:
                place += 1
            if place == size:
                return True
    return False


@compiled
def _next_item(
    table: Any,
    data: Any,
    position: Any,
    end: Any,
    stack: Any,
    top: Any,
    bases: Any,
    capacities: Any,
    counts: Any,
    index: Any,
    values: Any,
) -> Any:
    """(position, where the code goes on.) That is after the list's code when it has no more items."""
    place = stack[top, _PLACE]
    level = table[place + _ITEM_LEVEL]
    if stack[top, _LEFT] == 0:
        count, position = _varint(data, position, end)
        if position >= 0 and count < 0:
            # With the block's size. fastavro uses it where it passes over a list.
            _, position = _varint(data, position, end)
            count = -count if level >= 0 else -1
        if position < 0 or count < 0 or count > end - position:
            return BAD, 0
        if count == 0:
            column = table[place + _KEY_COLUMN]
            if column >= 0:
                length = values[stack[top, _SLOT]]
                first = bases[column] + counts[level] - length
                if length > _KEYS_MAX or _has_key_twice(data, values, first, capacities[level], length):
                    return BAD, 0
            return position, table[place + _AFTER]
        stack[top, _LEFT] = count
    stack[top, _LEFT] -= 1
    if level >= 0:
        if counts[level] == capacities[level]:
            return NO_ROOM, 0
        index[level] = counts[level]
        counts[level] += 1
        values[stack[top, _SLOT]] += 1
    return position, stack[top, _BODY]


@inlined
def _row(
    code: Any,
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
    counter = 0
    while position >= 0:
        operation, column = code[counter, 0], code[counter, 1]
        level, argument = code[counter, 2], code[counter, 3]
        counter += 1
        slot = numba.int64(-1)
        width = numba.int64(0)
        if column >= 0:
            slot = bases[column] + index[level]
            width = capacities[level]
        if operation < _STRUCT:
            position = _leaf(operation, argument, table, data, position, end, values, slot, width)
        elif operation == _UNION:
            choice, position = _varint(data, position, end)
            if position < 0 or choice < 0 or choice >= table[argument]:
                return BAD
            counter = table[argument + 1 + choice]
            if counter < 0:
                return BAD
        elif operation == _JUMP:
            counter = argument
        elif operation == _END:
            return position
        elif operation != _STRUCT:
            if operation == _LIST:
                stack[depth, _BODY] = counter
                stack[depth, _LEFT] = 0
                stack[depth, _PLACE] = argument
                stack[depth, _SLOT] = slot
                depth += 1
            top = depth - 1
            position, counter = _next_item(
                table, data, position, end, stack, top, bases, capacities, counts, index, values
            )
            if counter == table[stack[top, _PLACE] + _AFTER]:
                depth -= 1
        if slot >= 0:
            is_set[slot] = 1
    return position


@compiled
def _fill(
    code: Any,
    table: Any,
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
        if starts[row] < 0:
            continue
        index[0] = row
        for level in range(len(counts)):
            before[level] = counts[level]
        reached = _row(
            code, table, data, starts[row], ends[row], stack, bases, capacities, counts, index, values, is_set
        )
        if reached < 0:
            take_back(levels, bases, counts, row, before, values, is_set)
            if reached == NO_ROOM:
                return row
            is_bad[row] = True
    return len(starts)


def fill(
    code: Any, table: Any, depth_max: int, data: Any, starts: Any, ends: Any, row: int, slots: Any, is_bad: Any
) -> int:
    """Sets slots from the first row on, see `column_reading`. The row it stopped before as there is no room for its
    items, or the number of rows. Rows that start before 0 are null."""
    levels = len(slots.counts)
    stack, index, before = np.zeros((depth_max, 4), np.int64), np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    room = (slots.levels, slots.bases, slots.capacities, slots.counts, slots.values, slots.is_set)
    return int(_fill(code, table, stack, index, before, data, starts, ends, row, *room, is_bad))
