"""A Protobuf message as a program for `protobuf_kernel`: for each message a table of its fields by number.

Maps and required fields have no program, nor have fields and enums with large numbers: such messages are read row by
row. So is a row that the program does not like: fields with another wire type than theirs, enums without a name, two
members of one oneof. Google's parser decides then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from penstock.pipeline.schemas.column_slots import (
    DOUBLE_BITS,
    FLOAT_BITS,
    INTEGER,
    NOWHERE,
    ROWS,
    ByteStrings,
    Choices,
    Decimals,
    Layout,
    Lists,
    Node,
    NotPlain,
    Numbers,
    Structs,
    Times,
    field_types,
)
from penstock.protocol.records import write_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

VARINT, INT32, UINT32, SINT32, SINT64, BOOL, CHOICE, RANGED = range(8)
FIXED32, SFIXED32, FIXED64, TEXT, BYTES, MESSAGE = range(8, 14)
# Of a field: what it is, its column, the level of that, a place in the table; the column and the level of the list that
# it is an item of; the column that says which member of its oneof is set, and its number.
OPERATION, COLUMN, LEVEL, ARGUMENT, LIST_COLUMN, LIST_LEVEL, ONEOF_COLUMN, NUMBER, IS_REPEATED = range(9)
ROOT_COLUMN = 0

_NUMBER_MAX = 1000
# Microseconds of so many seconds and some nanoseconds fit into 64 bits.
_SECONDS_MAX = 9_000_000_000_000
_OPERATIONS: Mapping[int, tuple[int, str]] = {
    FieldDescriptor.TYPE_DOUBLE: (FIXED64, DOUBLE_BITS),
    FieldDescriptor.TYPE_FLOAT: (FIXED32, FLOAT_BITS),
    FieldDescriptor.TYPE_INT64: (VARINT, INTEGER),
    FieldDescriptor.TYPE_SINT64: (SINT64, INTEGER),
    FieldDescriptor.TYPE_SFIXED64: (FIXED64, INTEGER),
    FieldDescriptor.TYPE_UINT64: (VARINT, INTEGER),
    FieldDescriptor.TYPE_FIXED64: (FIXED64, INTEGER),
    FieldDescriptor.TYPE_INT32: (INT32, INTEGER),
    FieldDescriptor.TYPE_SINT32: (SINT32, INTEGER),
    FieldDescriptor.TYPE_SFIXED32: (SFIXED32, INTEGER),
    FieldDescriptor.TYPE_UINT32: (UINT32, INTEGER),
    FieldDescriptor.TYPE_FIXED32: (FIXED32, INTEGER),
    FieldDescriptor.TYPE_BOOL: (BOOL, INTEGER),
    FieldDescriptor.TYPE_STRING: (TEXT, ""),
    FieldDescriptor.TYPE_BYTES: (BYTES, ""),
}
_UNSIGNED_64 = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
_TIMES: Mapping[str, pa.DataType] = {
    "google.protobuf.Timestamp": pa.timestamp("us", "UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}


@dataclass(frozen=True)
class Program:
    fields: "NDArray[np.int64]"
    table: "NDArray[np.int64]"
    # What rows start with: which message it is.
    prefix: "NDArray[np.int64]"
    depth_max: int
    layout: Layout
    root: Node
    defaults: tuple[tuple[int, int], ...]

    def fill(self, *arguments: Any) -> int:
        from penstock.pipeline.schemas import protobuf_kernel

        return protobuf_kernel.fill(self.fields, self.table, self.prefix, self.depth_max, *arguments)


def program(
    message: Descriptor, writer: FileDescriptor, type_: pa.DataType, types: Mapping[int, pa.DataType]
) -> Program:
    """For rows that the writer's schema has this message for, in a column of this type, which may leave out fields;
    `types` are those of plain fields. Raises NotPlain."""
    path = next((each for each, name in _paths(writer) if name == message.full_name), None)
    if path is None:
        raise NotPlain
    compiler = _Compiler(types)
    compiler.layout.column(ROWS)
    root, _ = compiler.message(message, type_, ROOT_COLUMN, ROWS, 1)
    assert root is not None
    numbers = [0] if path == (0,) else [len(path), *path]
    prefix = bytearray()
    for number in numbers:
        write_varint(prefix, number)
    return Program(
        np.array(compiler.fields or [[0] * 9], np.int64),
        np.array(compiler.table, np.int64),
        np.array(list(prefix), np.int64),
        compiler.depth_max + 1,
        compiler.layout,
        root,
        tuple(compiler.defaults),
    )


def _paths(file: FileDescriptor) -> Iterator[tuple[tuple[int, ...], str]]:
    """Of all messages: their indexes, from the outermost in, and their names."""
    waiting: list[tuple[tuple[int, ...], Descriptor]]
    waiting = [((index,), each) for index, each in enumerate(file.message_types_by_name.values())]
    while waiting:
        path, message = waiting.pop()
        yield path, message.full_name
        waiting += [((*path, index), each) for index, each in enumerate(message.nested_types)]


class _Compiler:
    """Without a type, a value is passed over; what it is checked for stays the same."""

    def __init__(self, types: Mapping[int, pa.DataType]) -> None:
        self.fields: list[list[int]] = []
        self.table: list[int] = []
        self.layout = Layout()
        self.defaults: list[tuple[int, int]] = []
        self.depth_max = 1
        self._types = types

    def message(
        self, message: Descriptor, type_: pa.DataType | None, column: int, level: int, depth: int
    ) -> tuple[Node | None, int]:
        """(Node, where it stands in the table.)"""
        self.depth_max = max(self.depth_max, depth)
        wanted = field_types(type_)
        last = max((field.number for field in message.fields), default=0)
        if last > _NUMBER_MAX or not wanted.keys() <= {field.name for field in message.fields}:
            raise NotPlain
        place = self._in_table(last, *[NOWHERE] * (last + 1))
        oneofs = {
            each.name: NOWHERE if column == NOWHERE else self.layout.column(level)
            for each in message.oneofs
            if len(each.fields) > 1
        }
        nodes = {}
        for field in message.fields:
            self.table[place + 1 + field.number] = len(self.fields)
            made = [0] * 9
            self.fields.append(made)
            made[NUMBER] = field.number
            oneof = field.containing_oneof
            made[ONEOF_COLUMN] = NOWHERE if oneof is None else oneofs.get(oneof.name, NOWHERE)
            nodes[field.name] = self._field(field, made, wanted.get(field.name), column, level, depth)
        if type_ is None:
            return None, place
        return Structs(type_, column, tuple(node for each in type_ if (node := nodes[each.name]) is not None)), place

    def _in_table(self, *numbers: int) -> int:
        self.table += numbers
        return len(self.table) - len(numbers)

    def _field(
        self, field: FieldDescriptor, made: list[int], type_: pa.DataType | None, parent: int, level: int, depth: int
    ) -> Node | None:
        is_map = field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
        if field.is_required or field.type == FieldDescriptor.TYPE_GROUP or (is_map and type_ is not None):
            raise NotPlain
        made[LIST_COLUMN] = NOWHERE
        if not field.is_repeated:
            return self._single(field, made, type_, NOWHERE if field.has_presence else parent, level, depth)
        made[IS_REPEATED] = 1
        if type_ is None:
            self._single(field, made, None, NOWHERE, NOWHERE, depth)
            return None
        if not pa.types.is_list(type_):
            raise NotPlain
        column = self.layout.column(level)
        items_level = self.layout.level()
        made[LIST_COLUMN], made[LIST_LEVEL] = column, level
        self.defaults.append((column, parent))
        items = self._single(field, made, type_.value_type, NOWHERE, items_level, depth)
        assert items is not None
        return Lists(type_, column, items_level, items)

    def _single(
        self, field: FieldDescriptor, made: list[int], type_: pa.DataType | None, set_with: int, level: int, depth: int
    ) -> Node | None:
        """It has its default where `set_with` is set."""
        made[LEVEL] = level
        if field.message_type is not None:
            return self._message_field(field, made, type_, level, depth)
        operation, kept_as = _OPERATIONS.get(field.type, (CHOICE, INTEGER))
        natural = self._types[field.type]
        if type_ not in (None, natural):
            raise NotPlain
        is_wide = operation in (TEXT, BYTES) or field.type in _UNSIGNED_64
        column = NOWHERE if type_ is None else self.layout.column(level, 2 if is_wide else 1)
        made[OPERATION], made[COLUMN] = operation, column
        names = self._choice(field, made) if operation == CHOICE else None
        if type_ is None:
            return None
        if set_with != NOWHERE:
            self.defaults.append((column, set_with))
        if names is not None:
            return Choices(names, column)
        if operation in (TEXT, BYTES):
            return ByteStrings(type_, column)
        return Decimals(type_, column) if field.type in _UNSIGNED_64 else Numbers(type_, column, kept_as)

    def _choice(self, field: FieldDescriptor, made: list[int]) -> pa.Array:
        named = {value.number: value.name for value in reversed(field.enum_type.values)}
        if min(named) < 0 or max(named) > _NUMBER_MAX or (0 not in named and not field.has_presence):
            raise NotPlain
        names = [named.get(number) for number in range(max(named) + 1)]
        made[ARGUMENT] = self._in_table(len(names), *[each is not None for each in names])
        return pa.array(names, pa.string())

    def _message_field(
        self, field: FieldDescriptor, made: list[int], type_: pa.DataType | None, level: int, depth: int
    ) -> Node | None:
        message = field.message_type
        column = NOWHERE if type_ is None else self.layout.column(level)
        made[OPERATION], made[COLUMN] = MESSAGE, column
        if message.full_name not in _TIMES:
            node, made[ARGUMENT] = self.message(message, type_, column, level, depth + 1)
            return node
        if type_ not in (None, _TIMES[message.full_name]):
            raise NotPlain
        parts = None if type_ is None else pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
        first = len(self.fields)
        _, made[ARGUMENT] = self.message(message, parts, column, level, depth + 1)
        seconds, nanos = self.fields[first : first + 2]
        seconds[OPERATION] = RANGED
        seconds[ARGUMENT] = self._in_table(-_SECONDS_MAX, _SECONDS_MAX)
        return None if type_ is None else Times(type_, column, seconds[COLUMN], nanos[COLUMN])
