"""JSON Schema: objects are structs, or maps where their names are free; integers are long, other numbers double.

What may be of several types, or of any, is the JSON text itself, as a string. Values are read by what the reader's
schema says; JSON names its fields, so writers need not be known.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from penstock.pipeline.schemas.registry_client import Schema
from penstock.pipeline.schemas.values import Decoder, SchemaUnusable

_PLAIN: Mapping[str, tuple[pa.DataType, type]] = {
    "string": (pa.string(), str),
    "integer": (pa.int64(), int),
    "number": (pa.float64(), float),
    "boolean": (pa.bool_(), bool),
}
_TEXT = (pa.string(), msgspec.Raw)
_REF_PREFIX = "#"


class _Shapes:
    """(Arrow type, the type that msgspec checks against) of a schema."""

    def __init__(self, schema: Schema) -> None:
        try:
            self.root = json.loads(schema.text)
            self._others = {each.name: json.loads(each.text) for each in schema.references}
        except ValueError as problem:
            raise SchemaUnusable(f"JSON schema {schema.id} cannot be used: {problem}") from problem
        self._inside: list[str] = []

    def of(self, tree: Any, document: Any) -> tuple[pa.DataType, Any]:
        if not isinstance(tree, dict):
            return _TEXT
        if "$ref" in tree:
            return self._of_reference(str(tree["$ref"]), document)
        choices = tree.get("oneOf") or tree.get("anyOf")
        if choices:
            others = [each for each in choices if not (isinstance(each, dict) and each.get("type") == "null")]
            return self.of(others[0], document) if len(others) == 1 else _TEXT
        if "allOf" in tree:
            return self.of(tree["allOf"][0], document) if len(tree["allOf"]) == 1 else _TEXT
        kinds = tree.get("type", "object" if "properties" in tree else None)
        if isinstance(kinds, list):
            named = [each for each in kinds if each != "null"]
            kinds = named[0] if len(named) == 1 else "number" if set(named) == {"integer", "number"} else None
        if kinds is None and all(isinstance(each, str) for each in tree.get("enum", [None])):
            kinds = "string"
        if kinds == "object":
            return self._of_object(tree, document)
        if kinds == "array" and isinstance(tree.get("items"), dict):
            type_, shape = self.of(tree["items"], document)
            return pa.list_(type_), list[_or_null(shape)]  # type: ignore[misc]
        return _PLAIN.get(str(kinds), _TEXT)

    def _of_object(self, tree: Any, document: Any) -> tuple[pa.DataType, Any]:
        properties = tree.get("properties")
        if properties:
            shapes = {name: self.of(each, document) for name, each in properties.items()}
            # A required property and one that is null are the same to a column.
            checked = TypedDict("checked", {name: _or_null(shape) for name, (_, shape) in shapes.items()}, total=False)  # type: ignore[misc]
            return pa.struct([pa.field(name, type_) for name, (type_, _) in shapes.items()]), checked
        if isinstance(tree.get("additionalProperties"), dict):
            type_, shape = self.of(tree["additionalProperties"], document)
            return pa.map_(pa.string(), type_), dict[str, _or_null(shape)]  # type: ignore[misc]
        return _TEXT

    def _of_reference(self, reference: str, document: Any) -> tuple[pa.DataType, Any]:
        if reference in self._inside:
            raise SchemaUnusable(f"the JSON schema's {reference} contains itself, which no column can")
        name, _, path = reference.partition(_REF_PREFIX)
        if name:
            known = (name, name.removeprefix("json-schema:///"), name.rpartition("/")[2])
            found = next((self._others[each] for each in known if each in self._others), None)
            if found is None:
                raise SchemaUnusable(f"{reference} is not among the references of the JSON schema")
            document = found
        target = document
        for part in filter(None, path.split("/")):
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or part not in target:
                raise SchemaUnusable(f"the JSON schema has nothing at {reference}")
            target = target[part]
        self._inside.append(reference)
        try:
            return self.of(target, document)
        finally:
            self._inside.pop()


class JsonReader:
    def __init__(self, schema: Schema) -> None:
        shapes = _Shapes(schema)
        self.type, shape = shapes.of(shapes.root, shapes.root)
        self._decoder = JsonDecoder(_or_null(shape), _has_text(self.type, shape))

    def decoder(self, writer: Schema) -> "JsonDecoder":
        return self._decoder


def _has_text(type_: pa.DataType, shape: Any) -> bool:
    if shape is msgspec.Raw:
        return True
    if pa.types.is_struct(type_):
        return any(_has_text(type_.field(name).type, _bare(each)) for name, each in shape.__annotations__.items())
    if pa.types.is_list(type_):
        return _has_text(type_.value_type, _bare(shape.__args__[0]))
    return pa.types.is_map(type_) and _has_text(type_.item_type, _bare(shape.__args__[1]))


def _or_null(shape: Any) -> Any:
    # Raw takes a null as it takes everything.
    return shape if shape is msgspec.Raw else shape | None


def _bare(shape: Any) -> Any:
    """Without the null that it may be."""
    return shape.__args__[0] if type(None) in getattr(shape, "__args__", ()) else shape


class JsonDecoder(Decoder):
    def __init__(self, shape: Any, has_text: bool) -> None:
        self._decode = msgspec.json.Decoder(shape).decode
        self._has_text = has_text

    def row(self, data: bytes) -> Any:
        value = self._decode(data)
        return _with_text(value) if self._has_text else value


def _with_text(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        text = bytes(value).decode()
        return None if text == "null" else text
    if isinstance(value, dict):
        return {name: _with_text(each) for name, each in value.items()}
    return [_with_text(each) for each in value] if isinstance(value, list) else value


class JsonEncoder:
    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(decimal_format="number").encode

    def encoded(self, rows: Iterable[Any]) -> list[bytes | None]:
        return [None if row is None else self._encode(row) for row in rows]
