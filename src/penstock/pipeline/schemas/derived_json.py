"""A JSON Schema for a column's type. Closed, so that a property that is added later is a compatible change."""

import json
from typing import Any

import pyarrow as pa

from penstock.pipeline.schemas.values import SchemaUnusable

_DRAFT = "http://json-schema.org/draft-07/schema#"


def json_schema(type_: pa.DataType, full_name: str) -> str:
    """Raises SchemaUnusable."""
    return json.dumps({"$schema": _DRAFT, "title": full_name.rpartition(".")[2], **_type(type_)})


def _type(type_: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(type_):
        properties = {field.name: _nullable(field.type) for field in type_}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if pa.types.is_list(type_):
        return {"type": "array", "items": _nullable(type_.value_type)}
    if pa.types.is_map(type_):
        if not pa.types.is_string(type_.key_type):
            raise SchemaUnusable("names in JSON objects are strings: cast the map's keys")
        return {"type": "object", "additionalProperties": _nullable(type_.item_type)}
    if pa.types.is_boolean(type_):
        return {"type": "boolean"}
    if pa.types.is_integer(type_):
        return {"type": "integer"}
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return {"type": "number"}
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return {"type": "string"}
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return {"type": "string", "contentEncoding": "base64"}
    if pa.types.is_date32(type_):
        return {"type": "string", "format": "date"}
    if pa.types.is_timestamp(type_):
        return {"type": "string", **({"format": "date-time"} if type_.tz else {})}
    raise SchemaUnusable(f"JSON has no type for {type_}: cast it to a string or a number")


def _nullable(type_: pa.DataType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _type(type_)]}
