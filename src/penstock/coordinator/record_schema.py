"""How the records of `__consumer_offsets` are declared: one class per record, in kio's manner, for all its versions.

A field says from which version to which it is there. The class holds the union; the bytes of one version are read and
written through a class with just that version's fields, made on first use. Fields a version lacks get their default.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, dataclass_transform

from kio.static.constants import EntityType

from penstock.base.ports import Bytes
from penstock.protocol.messages import decode, encode
from penstock.protocol.schema_writer import writer

ANY_VERSION = 32767


class RecordPart:
    """What keys, values and the structures inside them are; subclasses are dataclasses that nobody changes."""

    __slots__ = ()

    __type__: ClassVar = EntityType.data
    # The version written, and the newest one read.
    __version__: ClassVar[int]
    __version_max__: ClassVar[int]
    # Flexible versions start here.
    __flexible_from__: ClassVar[int]
    __flexible__: ClassVar[bool]
    __api_key__: ClassVar[int]


def field(
    kafka_type: str | None = None,
    *,
    since: int = 0,
    until: int = ANY_VERSION,
    tag: int | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    metadata: dict[str, Any] = {"since": since, "until": until}
    if kafka_type is not None:
        metadata["kafka_type"] = kafka_type
    if tag is not None:
        metadata["tag"] = tag
    return dataclasses.field(metadata=metadata, default=default)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def structure(cls: Any) -> Any:
    """A structure inside a value."""
    return _dataclass(cls)


def _dataclass(cls: Any) -> Any:
    # Frozen for the type checker only: at run time that would make making one take three times as long.
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record_part(api_key: int, *, version: int = 0, version_max: int | None = None, flexible_from: int) -> Any:
    """A key or a value; `version` is the one that is written, everything up to `version_max` is read."""

    def declare(cls: Any) -> Any:
        cls.__api_key__ = api_key
        cls.__version__ = version
        cls.__version_max__ = version if version_max is None else version_max
        cls.__flexible_from__ = flexible_from
        cls.__flexible__ = version >= flexible_from
        return _dataclass(cls)

    return declare


def encode_part(part: RecordPart, version: int) -> bytearray:
    """The body, without the version in front of it."""
    cls: Any = type(part)
    return encode(_wire_class(cls, version, version >= part.__flexible_from__), part)


def prepare_writing(cls: Any) -> None:
    """Makes what writes the class, which otherwise the first record of its kind waits for."""
    writer(_wire_class(cls, cls.__version__, cls.__flexible__))


def decode_part(cls: Any, version: int, data: Bytes, position: int) -> Any:
    """Raises Malformed."""
    wire = _wire_class(cls, version, version >= cls.__flexible_from__)
    part = decode(wire, data, position)
    return part if wire is cls else _converter(cls)(part)


@cache
def _wire_class(cls: Any, version: int, flexible: bool) -> type:
    """The class with the fields that the version has, for kio's reader and our writer."""
    if _is_wire_class(cls, version, flexible):
        return cls  # type: ignore[no-any-return]
    fields: list[Any] = []
    for declared in dataclasses.fields(cls):
        if not declared.metadata["since"] <= version <= declared.metadata["until"]:
            continue
        kind = _wire_type(declared.type, version, flexible)
        default = {} if declared.default is dataclasses.MISSING else {"default": declared.default}
        fields.append((declared.name, kind, dataclasses.field(metadata=declared.metadata, **default)))
    namespace = {"__type__": EntityType.data, "__version__": version, "__flexible__": flexible}
    return dataclasses.make_dataclass(
        f"{cls.__name__}V{version}", fields, frozen=True, slots=True, kw_only=True, namespace=namespace
    )


def _is_wire_class(cls: Any, version: int, flexible: bool) -> bool:
    """Whether the declared class serves as it is. All keys do, and they are half of what is read while loading."""
    return getattr(cls, "__flexible__", None) is flexible and all(
        declared.metadata["since"] <= version <= declared.metadata["until"] and _field_converter(declared.type) is None
        for declared in dataclasses.fields(cls)
    )


def _wire_type(kind: Any, version: int, flexible: bool) -> Any:
    """The type with every declared structure in it replaced by its class for the version."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
        # The structure brings its own presence byte: kio's reader expects one in a tagged field, our writer has none.
        if _is_structure(inner):
            return _wire_type(inner, version, flexible)
        return _wire_type(inner, version, flexible) | None if typing.get_origin(inner) is tuple else kind
    if origin is tuple:
        return tuple[_wire_type(typing.get_args(kind)[0], version, flexible), ...]  # type: ignore[misc]
    return _wire_class(kind, version, flexible) if _is_structure(kind) else kind


Convert = Callable[[Any], Any]


@cache
def _converter(cls: Any) -> Convert:
    """The function that makes an instance of the declared class of what was read through one of its wire classes."""
    nested = {declared.name: _field_converter(declared.type) for declared in dataclasses.fields(cls)}

    def convert(wire: Any) -> Any:
        values = {}
        for name in wire.__slots__:
            value = getattr(wire, name)
            convert_value = nested[name]
            values[name] = value if convert_value is None or value is None else convert_value(value)
        return cls(**values)

    return convert


def _field_converter(kind: Any) -> Convert | None:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (kind,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if not _is_structure(item):
            return None
        convert_item = _converter(item)
        return lambda items: tuple(map(convert_item, items))
    return _converter(kind) if _is_structure(kind) else None


def _is_structure(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)
