"""A Protobuf schema for a column's type. Fields keep the numbers that the subject's newest schema gave them."""

import re
from collections.abc import Iterator

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from penstock.pipeline.schemas.values import SchemaUnusable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"


def protobuf_schema(type_: pa.DataType, full_name: str, before: Descriptor | None = None) -> str:
    """`before` is the message as it was registered last. Raises SchemaUnusable."""
    if not pa.types.is_struct(type_):
        raise SchemaUnusable(f"a Protobuf value is a message: make column value a struct, not {type_}")
    namespace, _, name = full_name.rpartition(".")
    body = "\n".join(_message(type_, name, before, 0))
    lines = ['syntax = "proto3";']
    if namespace:
        lines.append(f"package {namespace};")
    lines += [f'import "google/protobuf/{each}.proto";' for each in ("timestamp", "duration") if each in _used(type_)]
    return "\n".join([*lines, "", body, ""])


def _used(type_: pa.DataType) -> set[str]:
    if pa.types.is_timestamp(type_):
        return {"timestamp"}
    if pa.types.is_duration(type_):
        return {"duration"}
    return set().union(*(_used(type_.field(i).type) for i in range(type_.num_fields)))


def _message(type_: pa.DataType, name: str, before: Descriptor | None, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}message {_checked(name)} {{"
    known = {} if before is None else {field.name: field for field in before.fields}
    taken = {field.number for field in known.values()}
    nested: list[tuple[pa.DataType, str, Descriptor | None]] = []
    reserved = [each for each in known if each not in {field.name for field in type_}]
    following = max(taken, default=0) + 1
    if reserved:
        # Numbers of columns that are gone are not given to others.
        yield f"{indent}  reserved {', '.join(str(known[each].number) for each in reserved)};"
    for field in type_:
        earlier = known.get(field.name)
        number = following if earlier is None else earlier.number
        following += earlier is None
        message = None if earlier is None else earlier.message_type
        yield f"{indent}  {_declaration(field, nested, message)} {_checked(field.name)} = {number};"
    for struct, struct_name, earlier_message in nested:
        yield from _message(struct, struct_name, earlier_message, depth + 1)
    yield f"{indent}}}"


def _declaration(
    field: pa.Field, nested: list[tuple[pa.DataType, str, Descriptor | None]], before: Descriptor | None
) -> str:
    name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Value"
    if pa.types.is_list(field.type):
        if pa.types.is_list(field.type.value_type) or pa.types.is_map(field.type.value_type):
            raise SchemaUnusable(f"column {field.name}: Protobuf has no lists of lists or of maps")
        return f"repeated {_single(field.type.value_type, name, nested, before)}"
    if pa.types.is_map(field.type):
        if pa.types.is_list(field.type.item_type) or pa.types.is_map(field.type.item_type):
            raise SchemaUnusable(f"column {field.name}: Protobuf has no maps of lists or of maps")
        of_value = None if before is None else before.fields_by_name["value"].message_type
        value = _single(field.type.item_type, name, nested, of_value)
        return f"map<{_single(field.type.key_type, name, [], None)}, {value}>"
    return f"optional {_single(field.type, name, nested, before)}"


def _single(
    type_: pa.DataType, name: str, nested: list[tuple[pa.DataType, str, Descriptor | None]], before: Descriptor | None
) -> str:
    if pa.types.is_struct(type_):
        nested.append((type_, name, before))
        return name
    for is_type, proto in (
        (pa.types.is_boolean, "bool"),
        (pa.types.is_int64, "int64"),
        (pa.types.is_integer, "int32"),
        (pa.types.is_float32, "float"),
        (pa.types.is_float64, "double"),
        (pa.types.is_string, "string"),
        (pa.types.is_large_string, "string"),
        (pa.types.is_binary, "bytes"),
        (pa.types.is_large_binary, "bytes"),
        (pa.types.is_duration, _DURATION),
    ):
        if is_type(type_):
            return proto
    if pa.types.is_timestamp(type_) and type_.tz:
        return _TIMESTAMP
    raise SchemaUnusable(f"Protobuf has no type for {type_}: cast it to a string or a number")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SchemaUnusable(f"'{name}' cannot be a name in Protobuf (letters, digits and _): rename the column")
    return name
