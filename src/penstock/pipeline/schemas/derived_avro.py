"""An Avro schema for a column's type. Everything may be null, with null as its default, so that columns come and go."""

import json
import re
from typing import Any

import pyarrow as pa

from penstock.pipeline.schemas.values import SchemaUnusable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def avro_schema(type_: pa.DataType, full_name: str) -> str:
    """Raises SchemaUnusable."""
    namespace, _, name = full_name.rpartition(".")
    tree = _type(type_, name)
    if namespace and isinstance(tree, dict):
        tree = {"type": tree.pop("type"), "namespace": namespace, **tree}
    return json.dumps(tree)


def _type(type_: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(type_):
        fields = [
            {"name": _checked(field.name), "type": ["null", _type(field.type, f"{name}_{field.name}")], "default": None}
            for field in type_
        ]
        return {"type": "record", "name": _checked(name), "fields": fields}
    if pa.types.is_list(type_):
        return {"type": "array", "items": ["null", _type(type_.value_type, f"{name}_item")]}
    if pa.types.is_map(type_):
        if not pa.types.is_string(type_.key_type):
            raise SchemaUnusable("keys of maps in Avro are strings: cast them")
        return {"type": "map", "values": ["null", _type(type_.item_type, f"{name}_value")]}
    return _leaf(type_)


def _leaf(type_: pa.DataType) -> Any:
    if pa.types.is_decimal(type_):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if pa.types.is_timestamp(type_):
        return {"type": "long", "logicalType": "timestamp-micros" if type_.tz else "local-timestamp-micros"}
    if pa.types.is_date32(type_):
        return {"type": "int", "logicalType": "date"}
    for is_type, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_int64, "long"),
        (pa.types.is_integer, "int"),
        (pa.types.is_float32, "float"),
        (pa.types.is_float64, "double"),
        (_is_text, "string"),
        (_is_bytes, "bytes"),
    ):
        if is_type(type_):
            return name
    raise SchemaUnusable(f"Avro has no type for {type_}: cast it to a string or a number")


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SchemaUnusable(f"'{name}' cannot be a name in Avro (letters, digits and _): rename the column")
    return name
