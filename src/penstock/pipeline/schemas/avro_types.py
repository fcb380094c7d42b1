"""Arrow types of Avro ones, as Spark's own Avro functions give them.

Kept from logical types are dates, timestamps and decimals. Times and UUIDs are the numbers and texts that they are made
of, as in Spark. A union of several types is a struct of member0, member1, ... of which one is set; int with long is
long, float with double is double.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.pipeline.schemas.values import SchemaUnusable

PRIMITIVES: Mapping[str, pa.DataType] = {
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
LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
DECIMAL = "decimal"
_DECIMAL_DIGITS_MAX = 38


class AvroTypes:
    """Arrow types of Avro ones; the names that were defined so far are known."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._inside: list[str] = []
        self.struct_unions = False

    def of(self, schema: Any) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._named_type(schema) if schema not in PRIMITIVES else PRIMITIVES[schema]
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind)
        logical = schema.get("logicalType")
        if "name" in schema:
            self._named[schema["name"]] = schema
        if logical == DECIMAL:
            return decimal_type(schema)
        if (kind, logical) in LOGICAL:
            return LOGICAL[kind, logical]
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "array":
                return pa.list_(self.of(schema["items"]))
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"]))
        return PRIMITIVES[kind] if kind in PRIMITIVES else self._named_type(kind)

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


def decimal_type(schema: Any) -> pa.DataType:
    precision = int(schema["precision"])
    if precision > _DECIMAL_DIGITS_MAX:
        raise SchemaUnusable(f"a decimal of {precision} digits is too long: {_DECIMAL_DIGITS_MAX} fit into a column")
    return pa.decimal128(precision, int(schema.get("scale", 0)))
