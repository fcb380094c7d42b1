"""Avro: types as Spark's own Avro functions give them, rows by fastavro, older and newer writers resolved.

Kept from logical types are dates, timestamps and decimals. Times and UUIDs are the numbers and texts that they are made
of, as in Spark. A union of several types is a struct of member0, member1, ... of which one is set; int with long is
long, float with double is double.
"""

import io
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa

from penstock.pipeline.schemas.registry_client import Schema
from penstock.pipeline.schemas.values import SchemaUnusable

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_DECIMAL = "decimal"
_DECIMAL_DIGITS_MAX = 38
# What a union's member is, by the Python type that fastavro gives, the likeliest first: it names named types only where
# the writer had a union too.
_KINDS: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("long", "int"),
    float: ("double", "float"),
    str: ("string", "enum"),
    bytes: ("bytes", "fixed"),
    list: ("array",),
    dict: ("map", "record"),
}


def parsed(schema: Schema) -> Any:
    """Raises SchemaUnusable."""
    named: dict[str, Any] = {}
    try:
        for reference in schema.references:
            fastavro.parse_schema(_without_unused_logical_types(json.loads(reference.text)), named_schemas=named)
        found = fastavro.parse_schema(_without_unused_logical_types(json.loads(schema.text)), named_schemas=named)
        # With what it refers to written out: fastavro's readers know no names from elsewhere.
        return fastavro.schema.expand_schema(found) if schema.references else found
    except Exception as problem:
        # fastavro raises what Python does, beside its own.
        raise SchemaUnusable(f"Avro schema {schema.id} cannot be used: {problem}") from problem


def _without_unused_logical_types(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_unused_logical_types(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    made = {name: each if name == "default" else _without_unused_logical_types(each) for name, each in tree.items()}
    logical = made.get("logicalType")
    is_used = logical == _DECIMAL or (
        isinstance(made.get("type"), str) and isinstance(logical, str) and (made["type"], logical) in _LOGICAL
    )
    if not is_used:
        made.pop("logicalType", None)
    return made


class AvroReader:
    def __init__(self, schema: Schema) -> None:
        self._schema = parsed(schema)
        self._id = schema.id
        self._types = _Types()
        self.type = self._types.of(self._schema)

    def decoder(self, writer: Schema) -> "AvroDecoder":
        is_same = writer.id == self._id
        unions = self._types.struct_unions
        return AvroDecoder(parsed(writer), None if is_same else self._schema, self._schema if unions else None)


class AvroDecoder:
    def __init__(self, writer: Any, reader: Any, with_unions: Any) -> None:
        self._writer = writer
        self._reader = reader
        self._members = None if with_unions is None else _Members(with_unions)

    def row(self, data: bytes) -> Any:
        if self._members is None:
            return fastavro.schemaless_reader(io.BytesIO(data), self._writer, self._reader)
        found = fastavro.schemaless_reader(io.BytesIO(data), self._writer, self._reader, return_named_type=True)
        return self._members.placed(found)


class _Types:
    """Arrow types of Avro ones; the names that were defined so far are known."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._inside: list[str] = []
        self.struct_unions = False

    def of(self, schema: Any) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._named_type(schema) if schema not in _PRIMITIVES else _PRIMITIVES[schema]
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind)
        logical = schema.get("logicalType")
        if "name" in schema:
            self._named[schema["name"]] = schema
        if logical == _DECIMAL:
            return _decimal(schema)
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "array":
                return pa.list_(self.of(schema["items"]))
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"]))
        return _PRIMITIVES[kind] if kind in _PRIMITIVES else self._named_type(kind)

    def _named_type(self, name: str) -> pa.DataType:
        if name in self._inside:
            raise SchemaUnusable(f"Avro type {name} contains itself, which no column can")
        return self.of(self._named[name])

    def _record(self, schema: Any) -> pa.DataType:
        self._inside.append(schema["name"])
        fields = [pa.field(field["name"], self.of(field["type"])) for field in schema["fields"]]
        self._inside.pop()
        return pa.struct(fields)

    def _union(self, members: list[Any]) -> pa.DataType:
        others = [each for each in members if each != "null"]
        if not others:
            return pa.null()
        if len(others) == 1:
            return self.of(others[0])
        if is_number_union(others):
            return pa.int64() if "long" in others else pa.float64()
        self.struct_unions = True
        return pa.struct([pa.field(f"member{i}", self.of(each)) for i, each in enumerate(others)])


def is_number_union(others: list[Any]) -> bool:
    return all(isinstance(each, str) for each in others) and set(others) in ({"int", "long"}, {"float", "double"})


def _decimal(schema: Any) -> pa.DataType:
    precision = int(schema["precision"])
    if precision > _DECIMAL_DIGITS_MAX:
        raise SchemaUnusable(f"a decimal of {precision} digits is too long: {_DECIMAL_DIGITS_MAX} fit into a column")
    return pa.decimal128(precision, int(schema.get("scale", 0)))


class _Members:
    """Values of unions with several types, put under the name of their member."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = {}
        self._learn(schema)

    def _learn(self, schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._learn(each)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for part in ("items", "values", "type"):
                if not isinstance(schema.get(part, ""), str):
                    self._learn(schema[part])
            for field in schema.get("fields", ()):
                self._learn(field["type"])

    def placed(self, value: Any) -> Any:
        return self._placed(value, self._schema)

    def _placed(self, value: Any, schema: Any) -> Any:
        if value is None:
            return None
        if isinstance(schema, str):
            schema = self._named.get(schema, schema)
        if isinstance(schema, list):
            return self._of_union(value, [each for each in schema if each != "null"])
        if isinstance(value, tuple):
            value = value[1]
        if isinstance(schema, str):
            return value
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._placed(value, kind)
        match kind:
            case "record" | "error":
                return {field["name"]: self._placed(value[field["name"]], field["type"]) for field in schema["fields"]}
            case "array":
                return [self._placed(each, schema["items"]) for each in value]
            case "map":
                return {name: self._placed(each, schema["values"]) for name, each in value.items()}
        return value

    def _of_union(self, value: Any, members: list[Any]) -> Any:
        if len(members) == 1:
            return self._placed(value, members[0])
        if is_number_union(members):
            return value
        if isinstance(value, tuple):
            name, value = value
            index = next(i for i, each in enumerate(members) if self._name(each) == name)
        else:
            likely = _KINDS.get(type(value), ("",))
            index = next(
                i for kind in likely for i, each in enumerate(members) if _is_kind(self._known(each), kind, value)
            )
        return {f"member{index}": self._placed(value, members[index])}

    def _known(self, member: Any) -> Any:
        return self._named.get(member, member) if isinstance(member, str) else member

    @staticmethod
    def _name(member: Any) -> str:
        return member if isinstance(member, str) else str(member.get("name", ""))


def _is_kind(member: Any, kind: str, value: Any) -> bool:
    if isinstance(member, str):
        return member == kind
    logical = member.get("logicalType")
    if logical is None:
        return bool(member["type"] == kind)
    if isinstance(value, Decimal):
        return bool(logical == _DECIMAL)
    # A datetime is a date to Python.
    if isinstance(value, datetime):
        return bool(logical.startswith("local-") == (value.tzinfo is None)) and logical not in (_DECIMAL, "date")
    return isinstance(value, date) and logical == "date"


class AvroEncoder:
    def __init__(self, schema: Schema) -> None:
        self._schema = parsed(schema)

    def encoded(self, rows: Iterable[Any]) -> list[bytes | None]:
        made: list[bytes | None] = []
        for row in rows:
            if row is None:
                made.append(None)
                continue
            data = io.BytesIO()
            try:
                fastavro.schemaless_writer(data, self._schema, row, strict_allow_default=True)
            except Exception as problem:
                raise SchemaUnusable(f"a row does not fit the Avro schema: {problem}") from problem
            made.append(data.getvalue())
        return made
