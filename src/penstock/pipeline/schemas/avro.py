"""Avro: rows by fastavro, older and newer writers resolved; `avro_program` reads columns of them where it can."""

import io
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa

from penstock.pipeline.schemas.avro_program import program
from penstock.pipeline.schemas.avro_types import DECIMAL, LOGICAL, AvroTypes, is_number_union
from penstock.pipeline.schemas.column_reading import read_column
from penstock.pipeline.schemas.column_slots import NotPlain
from penstock.pipeline.schemas.registry_client import Schema
from penstock.pipeline.schemas.values import Decoder, SchemaUnusable

if TYPE_CHECKING:
    from penstock.pipeline.schemas.values import ColumnReader

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
    is_used = logical == DECIMAL or (
        isinstance(made.get("type"), str) and isinstance(logical, str) and (made["type"], logical) in LOGICAL
    )
    if not is_used:
        made.pop("logicalType", None)
    return made


class AvroReader:
    def __init__(self, schema: Schema) -> None:
        self._schema = parsed(schema)
        self._id = schema.id
        self._types = AvroTypes()
        self.type = self._types.of(self._schema)

    def decoder(self, writer: Schema) -> "AvroDecoder":
        is_same = writer.id == self._id
        unions = self._types.struct_unions
        return AvroDecoder(parsed(writer), None if is_same else self._schema, self._schema if unions else None)


class AvroDecoder(Decoder):
    def __init__(self, writer: Any, reader: Any, with_unions: Any) -> None:
        self._writer = writer
        self._reader = reader
        self._members = None if with_unions is None else _Members(with_unions)

    def row(self, data: bytes) -> Any:
        if self._members is None:
            return fastavro.schemaless_reader(io.BytesIO(data), self._writer, self._reader)
        found = fastavro.schemaless_reader(io.BytesIO(data), self._writer, self._reader, return_named_type=True)
        return self._members.placed(found)

    def columns(self, type_: pa.DataType) -> "ColumnReader | None":
        if self._members is not None:
            return None
        try:
            return partial(read_column, program(self._writer, self._reader, type_))
        except NotPlain:
            return None


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
        return bool(logical == DECIMAL)
    # A datetime is a date to Python.
    if isinstance(value, datetime):
        return bool(logical.startswith("local-") == (value.tzinfo is None)) and logical not in (DECIMAL, "date")
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
