"""What kio's declaration of a field says, for the reader and the writer that are made from it; and the `Struct`, a
message of no particular version."""

import dataclasses
import types
import typing
from typing import Any, NamedTuple

# How types of fixed size stand on the wire, in the words of `struct`.
FIXED_FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


class Struct:
    """A message or a part of one, of any version: fields as keyword arguments, by kio's names."""

    __slots__ = ("__dict__",)

    def __init__(self, **fields: Any) -> None:
        self.__dict__ = fields

    def __repr__(self) -> str:
        return f"Struct({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    if typing.TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


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
