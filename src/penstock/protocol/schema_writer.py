"""The writing half of the kio seam: functions made once from kio's declaration of a message.

What is written needs only to have the fields, by kio's names; see `penstock.protocol.messages.Struct`.
"""

import dataclasses
import uuid
from collections.abc import Callable, Iterable
from functools import cache
from struct import Struct as Packer
from typing import Any

from penstock.base.ports import Bytes
from penstock.protocol.schema import kind_of

Write = Callable[[bytearray, Any], None]


@cache
def writer(entity: type) -> Write:
    """The function that appends an `entity` to a bytearray, made once from kio's declaration of it."""
    plain: list[tuple[str, Any, Write]] = []
    tagged: list[tuple[int, str, Any, Write]] = []
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        write, implicit = _field_writer(field, flexible)
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
        if value is not None and _plain(value) != default:
            body = bytearray()
            write(body, value)
            present.append((tag, body))
    write_uvarint(out, len(present))
    for tag, body in present:
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body


def default_of(entity: type) -> Any:
    """What Kafka takes a tagged struct for that is not sent: each of its fields at its default."""
    values = {}
    for field in dataclasses.fields(entity):
        _, implicit = _field_writer(field, True)
        values[field.name] = implicit if field.default is dataclasses.MISSING else field.default
    return entity(**values)


def _plain(value: Any) -> Any:
    """kio's defaults and decoded values as the writers take them."""
    if hasattr(value, "total_seconds"):
        return round(value.total_seconds() * 1000)
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return value


def _field_writer(field: "dataclasses.Field[Any]", flexible: bool) -> tuple[Write, Any]:
    """(writer, implicit default) of one field."""
    kind = kind_of(field)
    if kind.is_struct:
        write = writer(kind.type)
        if kind.is_array:
            return _array_writer(write, flexible), None if kind.is_nullable else ()
        if kind.is_tagged:
            return write, default_of(kind.type)
        return (_nullable_struct(write) if kind.is_nullable else write), None
    if kind.is_array:
        write, _ = _primitive_writer(field.metadata["kafka_type"], flexible, False)
        return _array_writer(write, flexible), None if kind.is_nullable else ()
    return _primitive_writer(field.metadata["kafka_type"], flexible, kind.is_nullable)


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
