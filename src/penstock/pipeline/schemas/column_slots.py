"""Columns that a kernel fills row by row: where their slots are, and the Arrow arrays that they become.

A column has a slot of 64 bits, and a flag that says whether it is set, for each row of its level. Level 0 is that of
the rows; every list opens a level of its own, that of its items. Slots that are never set are null, and so is all that
is inside of them: a kernel passes over what is absent.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Flags = NDArray[np.bool_]
    Ints = NDArray[np.int64]

ROWS = 0
# The column of what is passed over.
NOWHERE = -1
_ITEMS_FIRST = 1024

# How a slot holds a number.
INTEGER = "integer"
FLOAT_BITS = "float bits"
DOUBLE_BITS = "double bits"


class NotPlain(Exception):
    """There is no program for this: rows have to be read one by one."""


class Layout:
    """Which columns there are, and the level of each."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.level_count = 1

    def column(self, level: int, width: int = 1) -> int:
        """Its number; what does not fit into one slot has the next column too."""
        self.levels += [level] * width
        return len(self.levels) - width

    def level(self) -> int:
        self.level_count += 1
        return self.level_count - 1


class Slots:
    """Of all columns, one column after the other: slot i of column c is at bases[c] + i."""

    def __init__(self, layout: Layout, rows: int) -> None:
        self.levels: Ints = np.array(layout.levels, np.int64)
        self.capacities: Ints = np.full(layout.level_count, max(rows, _ITEMS_FIRST), np.int64)
        self.capacities[ROWS] = rows
        # So many are in use.
        self.counts: Ints = np.zeros(layout.level_count, np.int64)
        self.counts[ROWS] = rows
        self._reserve()

    def _reserve(self) -> None:
        sizes = self.capacities[self.levels]
        ends = np.cumsum(sizes)
        self.bases: Ints = ends - sizes
        total = int(sizes.sum())
        self.values: Ints = np.zeros(total, np.int64)
        self.is_set: Bytes = np.zeros(total, np.uint8)

    def grow(self) -> None:
        """Twice as much room for items: a kernel stops before a row whose items do not fit."""
        bases, values, is_set = self.bases, self.values, self.is_set
        self.capacities[ROWS + 1 :] *= 2
        self._reserve()
        for old, new, level in zip(bases.tolist(), self.bases.tolist(), self.levels.tolist(), strict=True):
            count = int(self.counts[level])
            self.values[new : new + count] = values[old : old + count]
            self.is_set[new : new + count] = is_set[old : old + count]

    def of(self, column: int) -> "Ints":
        base = self.bases[column]
        return self.values[base : base + self.counts[self.levels[column]]]

    def flags(self, column: int) -> "Bytes":
        base = self.bases[column]
        return self.is_set[base : base + self.counts[self.levels[column]]]


@dataclass(frozen=True)
class Filled:
    slots: Slots
    # What texts and bytes are positions in.
    data: "Bytes"
    # (data, starts, lengths, offsets to fill) -> bytes.
    gather: "Callable[[Bytes, Ints, Ints, NDArray[np.int32]], Bytes]"


class Node(Protocol):
    """A part of the tree that the columns are."""

    @abstractmethod
    def array(self, filled: Filled, rows: int) -> pa.Array: ...


def _bitmap(flags: "Bytes | Flags") -> tuple[pa.Buffer | None, int]:
    """(Arrow's validity, number of nulls.)"""
    nulls = len(flags) - int(np.count_nonzero(flags))
    return (pa.py_buffer(np.packbits(flags, bitorder="little")) if nulls else None), nulls


@dataclass(frozen=True)
class Numbers:
    type: pa.DataType
    column: int
    kept_as: str = INTEGER

    def array(self, filled: Filled, rows: int) -> pa.Array:
        valid, nulls = _bitmap(filled.slots.flags(self.column))
        found: Any = filled.slots.of(self.column)
        if self.kept_as == FLOAT_BITS:
            found = found.astype(np.int32).view(np.float32)
        elif self.kept_as == DOUBLE_BITS:
            found = found.view(np.float64)
        if pa.types.is_boolean(self.type):
            found = np.packbits(found != 0, bitorder="little")
        elif pa.types.is_float32(self.type) and self.kept_as == INTEGER:
            # By way of a double, as Python does.
            found = found.astype(np.float64).astype(np.float32)
        elif pa.types.is_floating(self.type):
            found = found.astype(np.float32 if self.type.bit_width == 32 else np.float64, copy=False)
        elif self.type.bit_width == 32:
            found = found.astype(np.int32)
        return pa.Array.from_buffers(self.type, rows, [valid, pa.py_buffer(found)], nulls)


@dataclass(frozen=True)
class Decimals:
    """The low half in one column, the high half in the next."""

    type: pa.DataType
    column: int

    def array(self, filled: Filled, rows: int) -> pa.Array:
        valid, nulls = _bitmap(filled.slots.flags(self.column))
        halves = np.stack([filled.slots.of(self.column), filled.slots.of(self.column + 1)], axis=1)
        return pa.Array.from_buffers(self.type, rows, [valid, pa.py_buffer(halves)], nulls)


@dataclass(frozen=True)
class ByteStrings:
    """Text or bytes: where they start in one column, their length in the next."""

    type: pa.DataType
    column: int

    def array(self, filled: Filled, rows: int) -> pa.Array:
        valid, nulls = _bitmap(filled.slots.flags(self.column))
        offsets: NDArray[np.int32] = np.empty(rows + 1, np.int32)
        starts, lengths = filled.slots.of(self.column), filled.slots.of(self.column + 1)
        found = filled.gather(filled.data, starts, lengths, offsets)
        return pa.Array.from_buffers(self.type, rows, [valid, pa.py_buffer(offsets), pa.py_buffer(found)], nulls)


@dataclass(frozen=True)
class Choices:
    """Texts by their index."""

    texts: pa.Array
    column: int

    def array(self, filled: Filled, rows: int) -> pa.Array:
        valid, nulls = _bitmap(filled.slots.flags(self.column))
        indexes = pa.py_buffer(filled.slots.of(self.column))
        return self.texts.take(pa.Array.from_buffers(pa.int64(), rows, [valid, indexes], nulls))


@dataclass(frozen=True)
class Constant:
    """The same in every row: one value in an array."""

    value: pa.Array

    def array(self, filled: Filled, rows: int) -> pa.Array:
        return self.value.take(pa.array(np.zeros(rows, np.int64)))


@dataclass(frozen=True)
class Structs:
    type: pa.DataType
    column: int
    children: tuple[Node, ...]

    def array(self, filled: Filled, rows: int) -> pa.Array:
        valid, nulls = _bitmap(filled.slots.flags(self.column))
        children = [child.array(filled, rows) for child in self.children]
        return pa.Array.from_buffers(self.type, rows, [valid], nulls, children=children)


@dataclass(frozen=True)
class Lists:
    """The column holds how many items there are; those of all rows follow one another."""

    type: pa.DataType
    column: int
    level: int
    items: Node
    # Of a map.
    keys: Node | None = None

    def array(self, filled: Filled, rows: int) -> pa.Array:
        valid, nulls = _bitmap(filled.slots.flags(self.column))
        offsets: NDArray[np.int32] = np.zeros(rows + 1, np.int32)
        np.cumsum(filled.slots.of(self.column), out=offsets[1:])
        count = int(filled.slots.counts[self.level])
        items = self.items.array(filled, count)
        if self.keys is not None:
            pair = pa.struct([self.type.key_field, self.type.item_field])
            items = pa.Array.from_buffers(pair, count, [None], 0, children=[self.keys.array(filled, count), items])
        return pa.Array.from_buffers(self.type, rows, [valid, pa.py_buffer(offsets)], nulls, children=[items])


@dataclass(frozen=True)
class Times:
    """Seconds in one column, nanoseconds in another; a third one says whether there are any."""

    type: pa.DataType
    column: int
    seconds: int
    nanos: int

    def array(self, filled: Filled, rows: int) -> pa.Array:
        valid, nulls = _bitmap(filled.slots.flags(self.column))
        micros = filled.slots.of(self.seconds) * 1_000_000 + filled.slots.of(self.nanos) // 1000
        return pa.Array.from_buffers(self.type, rows, [valid, pa.py_buffer(micros)], nulls)


def field_types(type_: pa.DataType | None) -> dict[str, pa.DataType]:
    """Of a struct; none where nothing is wanted. Raises NotPlain."""
    if type_ is None:
        return {}
    if not pa.types.is_struct(type_):
        raise NotPlain
    wanted = {each.name: each.type for each in type_}
    if len(wanted) != type_.num_fields:
        raise NotPlain
    return wanted
