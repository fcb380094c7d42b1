"""What kio's declaration of a field says: for the reader and the writer that are made from it."""

import dataclasses
import types
import typing
from typing import Any, NamedTuple


class FieldKind(NamedTuple):
    # The declared type of the field or, in an array, of an item: another message's class, or a primitive.
    type: Any
    is_array: bool
    is_struct: bool
    is_nullable: bool
    is_tagged: bool


def kind_of(field: "dataclasses.Field[Any]") -> FieldKind:
    declared: Any = field.type
    is_nullable = False
    if typing.get_origin(declared) in (types.UnionType, typing.Union):
        is_nullable = True
        (declared,) = (part for part in typing.get_args(declared) if part is not types.NoneType)
    is_array = typing.get_origin(declared) is tuple
    if is_array:
        declared = typing.get_args(declared)[0]
    return FieldKind(declared, is_array, dataclasses.is_dataclass(declared), is_nullable, "tag" in field.metadata)
