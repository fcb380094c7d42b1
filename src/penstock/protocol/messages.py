"""The kio seam: every message but Produce and Fetch, in every version, by one pair of functions.

kio has a frozen dataclass for each version of each message. Reading gives those (native code, strict about lengths).
Writing takes a `Struct`, which is the same for all versions: the version's own schema picks the fields that it has,
absent ones get the schema's default or Kafka's implicit one (0, "", empty), the others are left out. So a handler
builds one answer and never asks which version it speaks, except where Kafka's behaviour itself differs.

Times stay milliseconds on the writing side: give an int where kio's schema says timedelta or datetime.
"""

import dataclasses
import types
import typing
import uuid
from collections.abc import Callable, Iterable
from functools import cache
from struct import Struct as Packer
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from penstock.base.ports import Bytes


class Malformed(ValueError):
    """The bytes are not a message of the version they claim to be."""


class Struct:
    """A message or a part of one, for writing: any of its fields as keyword arguments, by kio's names."""

    __slots__ = ("__dict__",)

    def __init__(self, **fields: Any) -> None:
        self.__dict__ = fields

    def __repr__(self) -> str:
        return f"Struct({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    if typing.TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


def decode(entity: type, data: Bytes, position: int = 0) -> Any:
    """The message at `position`, which must fill the rest of `data` exactly."""
    message, end = _read(entity, data, position)
    if end != len(data):
        raise Malformed(f"{entity.__name__}: {len(data) - end} bytes are left over")
    return message


def _read(entity: type, data: Bytes, position: int) -> tuple[Any, int]:
    """(message, position after it)."""
    # kio's native reader takes only what cannot change under it.
    source, start = (data, position) if isinstance(data, bytes) else (bytes(data[position:]), 0)
    try:
        reader: Any = entity_reader(entity)
        message, size = reader(source, start)
    except (SerialError, ValueError, OverflowError, TypeError) as error:
        raise Malformed(f"{entity.__name__}: {error}") from error
    return message, position + size


def encode(entity: type, message: object) -> bytearray:
    out = bytearray()
    writer(entity)(out, message)
    return out


@cache
def request_entity(api_key: int, version: int) -> type:
    return load_request_schema(api_key, version)


@cache
def response_entity(api_key: int, version: int) -> type:
    return load_response_schema(api_key, version)


def decode_request(api_key: int, version: int, data: Bytes, position: int = 0) -> Any:
    """A request's body, after its header. Bytes behind it are ignored, as Kafka does: librdkafka sends some."""
    message, _ = _read(request_entity(api_key, version), data, position)
    return message


def encode_response(api_key: int, version: int, correlation_id: int, body: object) -> bytearray:
    """A whole frame: size, header and body."""
    entity: Any = response_entity(api_key, version)
    out = bytearray(8)
    if entity.__header_schema__.__version__ == 1:
        out.append(0)
    writer(entity)(out, body)
    _FRAME.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


Write = Callable[[bytearray, Any], None]

_FRAME = Packer(">ii")
_NO_DEFAULT: Any = object()


@cache
def writer(entity: type) -> Write:
    """The function that appends an `entity` to a bytearray, made once from kio's declaration of it."""
    plain: list[tuple[str, Any, Write]] = []
    tagged: list[tuple[int, str, Any, Write]] = []
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        write, implicit = _field_writer(field, flexible, tag is not None)
        default = implicit if field.default is dataclasses.MISSING else _plain(field.default)
        if tag is None:
            plain.append((field.name, default, write))
        else:
            tagged.append((tag, field.name, default, write))
    tagged.sort(key=lambda item: item[0])

    def write_entity(out: bytearray, message: Any) -> None:
        for name, default, write in plain:
            write(out, getattr(message, name, default))
        if flexible:
            _write_tagged(out, message, tagged)

    return write_entity


def _write_tagged(out: bytearray, message: Any, tagged: list[tuple[int, str, Any, Write]]) -> None:
    present = []
    for tag, name, default, write in tagged:
        value = getattr(message, name, default)
        if _plain(value) != default:
            body = bytearray()
            write(body, value)
            present.append((tag, body))
    write_uvarint(out, len(present))
    for tag, body in present:
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body


def _plain(value: Any) -> Any:
    """kio's defaults and decoded values as the writers take them."""
    if hasattr(value, "total_seconds"):
        return round(value.total_seconds() * 1000)
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return value


def _field_writer(field: "dataclasses.Field[Any]", flexible: bool, is_tagged: bool) -> tuple[Write, Any]:
    """(writer, implicit default) of one field."""
    kind: Any = field.type
    nullable = False
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        nullable = True
        (kind,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if dataclasses.is_dataclass(item):
            write_item: Write = writer(typing.cast(type, item))
        else:
            write_item, _ = _primitive_writer(field.metadata["kafka_type"], flexible, False)
        return _array_writer(write_item, flexible), None if nullable else ()
    if dataclasses.is_dataclass(kind):
        write = writer(typing.cast(type, kind))
        return (_nullable_struct(write) if nullable and not is_tagged else write), None
    return _primitive_writer(field.metadata["kafka_type"], flexible, nullable)


def _primitive_writer(kafka_type: str, flexible: bool, nullable: bool) -> tuple[Write, Any]:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type], -1 if nullable else 0
    if kafka_type == "bool":
        return _write_bool, False
    if kafka_type == "uuid":
        return _write_uuid, None
    if kafka_type == "string":
        return (_write_compact_string if flexible else _write_string), None if nullable else ""
    if kafka_type in ("bytes", "records"):
        return (_write_compact_bytes if flexible else _write_bytes), None if nullable else b""
    raise TypeError(f"kio has a type that this seam does not know: {kafka_type}")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _fixed(format: str) -> Write:
    pack = Packer(format).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(-1 if value is None else _plain(value))

    return write


def _integer(format: str) -> Write:
    pack = Packer(format).pack

    def write(out: bytearray, value: int) -> None:
        out += pack(value)

    return write


_FIXED: dict[str, Write] = {
    "int8": _integer(">b"),
    "int16": _integer(">h"),
    "int32": _integer(">i"),
    "int64": _integer(">q"),
    "uint8": _integer(">B"),
    "uint16": _integer(">H"),
    "uint32": _integer(">I"),
    "uint64": _integer(">Q"),
    "float64": _integer(">d"),
    "error_code": _integer(">h"),
    "timedelta_i32": _fixed(">i"),
    "timedelta_i64": _fixed(">q"),
    "datetime_i64": _fixed(">q"),
}
_INT16 = Packer(">h").pack
_INT32 = Packer(">i").pack
_ZERO_UUID = bytes(16)


def _write_bool(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def _write_uuid(out: bytearray, value: uuid.UUID | None) -> None:
    out += _ZERO_UUID if value is None else value.bytes


def _write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        data = value.encode()
        out += _INT16(len(data))
        out += data


def _write_compact_string(out: bytearray, value: str | None) -> None:
    _write_compact_bytes(out, None if value is None else value.encode())


def _write_bytes(out: bytearray, value: Bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _INT32(len(value))
        out += value


def _write_compact_bytes(out: bytearray, value: Bytes | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_uvarint(out, len(value) + 1)
        out += value


def _array_writer(write_item: Write, flexible: bool) -> Write:
    def write(out: bytearray, items: Iterable[Any] | None) -> None:
        if items is None:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        sized = items if isinstance(items, (list, tuple)) else list(items)
        if flexible:
            write_uvarint(out, len(sized) + 1)
        else:
            out += _INT32(len(sized))
        for item in sized:
            write_item(out, item)

    return write


def _nullable_struct(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable
