"""An Avro schema as a program for `avro_kernel`: one instruction for each value that a row is made of.

A writer's schema that differs from the reader's is resolved here, once: fields by their names, defaults, wider numbers,
symbols. What is not plain has no program, and is read row by row; so is a row that the program does not like. The
rows' way is fastavro's, and decides: a program gives the same value or none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.pipeline.schemas.avro_types import DECIMAL, LOGICAL, PRIMITIVES, decimal_type, is_number_union
from penstock.pipeline.schemas.column_slots import (
    DOUBLE_BITS,
    FLOAT_BITS,
    INTEGER,
    NOWHERE,
    ROWS,
    ByteStrings,
    Choices,
    Constant,
    Decimals,
    Layout,
    Lists,
    Node,
    NotPlain,
    Numbers,
    Structs,
    field_types,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Instructions are (operation, column or NOWHERE, level, argument); arguments are mostly places in the table.
LONG, RANGED, CHOICE, BOOLEAN, FLOAT, DOUBLE, TEXT, BYTES, FIXED, DECIMAL_BYTES = range(10)
STRUCT, UNION, JUMP, LIST, NEXT, END = range(10, 16)
# Places in what a list has in the table: the level of its items, the column of a map's keys, where the code goes on.
ITEM_LEVEL, KEY_COLUMN, AFTER = range(3)

_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
# What Python's dates can say, and so the rows' way.
_DAYS = (date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH)
_MICROS = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)
_MILLIS = (_MICROS[0] // 1000, _MICROS[1] // 1000)
_INT = (-(2**31), 2**31 - 1)
# (smallest, largest, times).
_RANGES: Mapping[tuple[str, str | None], tuple[int, int, int]] = {
    ("int", None): (*_INT, 1),
    ("int", "date"): (*_DAYS, 1),
    ("long", "timestamp-millis"): (*_MILLIS, 1000),
    ("long", "local-timestamp-millis"): (*_MILLIS, 1000),
    ("long", "timestamp-micros"): (*_MICROS, 1),
    ("long", "local-timestamp-micros"): (*_MICROS, 1),
}
_WIDER: Mapping[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
}
_KEPT_AS = {"float": FLOAT_BITS, "double": DOUBLE_BITS}
_OPERATIONS = {
    "boolean": BOOLEAN,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "string": TEXT,
    "bytes": BYTES,
    "fixed": FIXED,
}
_KINDS = {*PRIMITIVES, "record", "error", "array", "map"}
_WORD = 2**64
# A name that is used again has its code again, and that grows with every name inside of it.
_CODE_MAX = 10_000


@dataclass(frozen=True)
class Program:
    code: "NDArray[np.int64]"
    table: "NDArray[np.int64]"
    # Lists that may be open at the same time, at most.
    depth_max: int
    layout: Layout
    root: Node
    defaults: tuple[tuple[int, int], ...] = ()

    def fill(self, *arguments: Any) -> int:
        from penstock.pipeline.schemas import avro_kernel

        return avro_kernel.fill(self.code, self.table, self.depth_max, *arguments)


def program(writer: Any, reader: Any, type_: pa.DataType) -> Program:
    """For values of the writer's parsed schema in a column of the reader's (None: it is the same), which may leave out
    fields. Raises NotPlain."""
    compiler = _Compiler()
    root = compiler.value(writer, reader, type_, ROWS)
    compiler.emit(END)
    assert root is not None
    code, table = np.array(compiler.code, np.int64), np.array([*compiler.table, 0], np.int64)
    return Program(code, table, compiler.list_count + 1, compiler.layout, root)


class _Compiler:
    """Without a type, a value is passed over; what it is checked for stays the same."""

    def __init__(self) -> None:
        self.code: list[tuple[int, int, int, int]] = []
        self.table: list[int] = []
        self.layout = Layout()
        self.list_count = 0
        self._named: dict[str, Any] = {}
        self._inside: list[str] = []

    def emit(self, operation: int, column: int = NOWHERE, level: int = ROWS, argument: int = 0) -> None:
        if len(self.code) == _CODE_MAX:
            raise NotPlain
        self.code.append((operation, column, level, argument))

    def value(self, writer: Any, reader: Any, type_: pa.DataType | None, level: int) -> Node | None:
        if isinstance(writer, list):
            return self._union(writer, reader, type_, level)
        if isinstance(reader, list):
            reader = _member_for(writer, reader)
        kind = _kind(writer)
        if kind not in _KINDS:
            # fastavro resolves names in ways of its own.
            if reader is not None:
                raise NotPlain
            return self.value(self._named[kind], None, type_, level)
        if kind in ("record", "error"):
            return self._record(writer, reader, type_, level)
        if kind in ("array", "map"):
            return self._list(writer, reader, type_, level)
        return self._leaf(writer, reader, type_, level)

    def _in_table(self, *numbers: int) -> int:
        self.table += numbers
        return len(self.table) - len(numbers)

    def _column(self, type_: pa.DataType | None, level: int, width: int = 1) -> int:
        return NOWHERE if type_ is None else self.layout.column(level, width)

    def _union(self, members: list[Any], reader: Any, type_: pa.DataType | None, level: int) -> Node | None:
        place = self._in_table(len(members), *[NOWHERE] * len(members))
        self.emit(UNION, argument=place)
        others = [each for each in members if each != "null"]
        node: Node | None = None
        is_number = type_ == pa.int64() and reader is None and is_number_union(others)
        if is_number:
            node = Numbers(type_, self.layout.column(level))
        jumps = []
        for index, member in enumerate(members):
            if member == "null" and reader is not None and not _has_null(reader):
                # Such a row is bad, and the rows' way says why.
                continue
            self.table[place + 1 + index] = len(self.code)
            if member != "null" and is_number and isinstance(node, Numbers):
                self._number(member, None, node.column, level)
            elif member != "null":
                if node is not None:
                    raise NotPlain
                node = self.value(member, reader, type_, level)
            jumps.append(len(self.code))
            self.emit(JUMP)
        for jump in jumps:
            self.code[jump] = (JUMP, NOWHERE, ROWS, len(self.code))
        return Constant(pa.nulls(1, type_)) if node is None and type_ is not None else node

    def _record(self, writer: Any, reader: Any, type_: pa.DataType | None, level: int) -> Node | None:
        name = writer["name"]
        self._named[name] = writer
        if name in self._inside or not _is_same_named(writer, reader):
            raise NotPlain
        self._inside.append(name)
        wanted = field_types(type_)
        column = self._column(type_, level)
        self.emit(STRUCT, column, level)
        known = {each["name"]: each for each in (reader or writer)["fields"]}
        if not wanted.keys() <= known.keys() or any("aliases" in each for each in known.values()):
            raise NotPlain
        nodes: dict[str, Node | None] = {}
        for field in writer["fields"]:
            if field["name"] not in known:
                self.value(field["type"], None, None, level)
                continue
            field_reader = None if reader is None else known[field["name"]]["type"]
            nodes[field["name"]] = self.value(field["type"], field_reader, wanted.get(field["name"]), level)
        for field in known.values():
            if field["name"] not in nodes:
                nodes[field["name"]] = _default(field, wanted.get(field["name"]))
        self._inside.pop()
        if type_ is None:
            return None
        return Structs(type_, column, tuple(node for each in type_ if (node := nodes[each.name]) is not None))

    def _list(self, writer: Any, reader: Any, type_: pa.DataType | None, level: int) -> Node | None:
        kind = _kind(writer)
        if reader is not None and _kind(reader) != kind:
            raise NotPlain
        is_map = kind == "map"
        if type_ is not None and not (_is_text_map(type_) if is_map else pa.types.is_list(type_)):
            raise NotPlain
        column = self._column(type_, level)
        item_level = NOWHERE if type_ is None else self.layout.level()
        key_column = self._column(type_, item_level, 2) if is_map else NOWHERE
        place = self._in_table(item_level, key_column, 0)
        self.list_count += 1
        self.emit(LIST, column, level, place)
        if is_map:
            self.emit(TEXT, key_column, item_level)
        part = "values" if is_map else "items"
        item_type = None if type_ is None else type_.item_type if is_map else type_.value_type
        before = len(self.code)
        items = self.value(writer[part], None if reader is None else reader[part], item_type, item_level)
        if not is_map and all(_takes_no_bytes(*each) for each in self.code[before:]):
            # Items without bytes: nothing but their number says how many there can be.
            raise NotPlain
        self.emit(NEXT)
        self.table[place + AFTER] = len(self.code)
        if type_ is None or items is None:
            return None
        return Lists(type_, column, item_level, items, ByteStrings(pa.string(), key_column) if is_map else None)

    def _leaf(self, writer: Any, reader: Any, type_: pa.DataType | None, level: int) -> Node | None:
        kind, logical = _kind(writer), _logical(writer)
        wanted, wanted_logical = (kind, logical) if reader is None else (_kind(reader), _logical(reader))
        if kind == "null" and wanted == "null":
            return None if type_ is None else Constant(pa.nulls(1, type_))
        if "name" in writer:
            self._named[writer["name"]] = writer
        if not _is_same_named(writer, reader):
            raise NotPlain
        if logical == DECIMAL or wanted_logical == DECIMAL:
            return self._decimal(writer, reader, type_, level)
        natural = PRIMITIVES.get(wanted) if wanted_logical is None else LOGICAL.get((wanted, wanted_logical))
        if type_ not in (None, natural):
            raise NotPlain
        if logical is not None or wanted_logical is not None:
            # The rows' way takes the writer's logical type.
            if LOGICAL.get((kind, str(logical))) != natural:
                raise NotPlain
        elif wanted != kind and wanted not in _WIDER.get(kind, ()):
            raise NotPlain
        if kind == "enum":
            return self._choice(writer, reader, type_, level)
        if kind in ("string", "bytes", "fixed"):
            column = self._column(type_, level, 2)
            self.emit(_OPERATIONS[kind], column, level, writer["size"] if kind == "fixed" else 0)
            return None if type_ is None else ByteStrings(type_, column)
        column = self._column(type_, level)
        self._number(kind, logical, column, level)
        return None if type_ is None else Numbers(type_, column, _KEPT_AS.get(kind, INTEGER))

    def _number(self, kind: str, logical: str | None, column: int, level: int) -> None:
        if (kind, logical) in _RANGES:
            self.emit(RANGED, column, level, self._in_table(*_RANGES[kind, logical]))
        else:
            self.emit(_OPERATIONS[kind], column, level)

    def _choice(self, writer: Any, reader: Any, type_: pa.DataType | None, level: int) -> Node | None:
        known = writer if reader is None else reader
        texts = [each if each in known["symbols"] else known.get("default") or None for each in writer["symbols"]]
        column = self._column(type_, level)
        self.emit(CHOICE, column, level, self._in_table(len(texts), *[each is not None for each in texts]))
        return None if type_ is None else Choices(pa.array(texts, pa.string()), column)

    def _decimal(self, writer: Any, reader: Any, type_: pa.DataType | None, level: int) -> Node | None:
        natural = _decimal_type(writer)
        if reader is not None and (_kind(reader) != _kind(writer) or _decimal_type(reader) != natural):
            raise NotPlain
        if type_ not in (None, natural):
            raise NotPlain
        column = self._column(type_, level, 2)
        high, low = divmod(10**natural.precision, _WORD)
        size = writer["size"] if _kind(writer) == "fixed" else NOWHERE
        place = self._in_table(size, high, low - _WORD if low >= _WORD // 2 else low)
        self.emit(DECIMAL_BYTES, column, level, place)
        return None if type_ is None else Decimals(type_, column)


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _logical(schema: Any) -> str | None:
    return None if isinstance(schema, str) else schema.get("logicalType")


def _takes_no_bytes(operation: int, column: int, level: int, argument: int) -> bool:
    return operation == STRUCT or (operation == FIXED and argument == 0)


def _has_null(reader: Any) -> bool:
    return "null" in reader if isinstance(reader, list) else _kind(reader) == "null"


def _member_for(writer: Any, reader: list[Any]) -> Any:
    """What of the reader's union a value is read as, where there is no choice."""
    if writer == "null" and "null" in reader:
        return "null"
    others = [each for each in reader if each != "null"]
    if len(others) != 1:
        raise NotPlain
    return others[0]


def _is_same_named(writer: Any, reader: Any) -> bool:
    """Or has no name at all."""
    if reader is None or isinstance(writer, str) or "name" not in writer:
        return True
    is_same = not isinstance(reader, str) and _kind(reader) == _kind(writer) and reader.get("name") == writer["name"]
    return is_same and reader.get("size") == writer.get("size")


def _is_text_map(type_: pa.DataType) -> bool:
    return bool(pa.types.is_map(type_) and type_.key_type == pa.string())


def _decimal_type(schema: Any) -> pa.DataType:
    if _logical(schema) != DECIMAL or _kind(schema) not in ("bytes", "fixed"):
        raise NotPlain
    return decimal_type(schema)


def _default(field: Any, type_: pa.DataType | None) -> Node | None:
    """As the rows' way has it: the schema's JSON, whatever the type."""
    if "default" not in field:
        raise NotPlain
    if type_ is None:
        return None
    try:
        return Constant(pa.array([field["default"]], type_))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise NotPlain from None
