"""The writing half of the kio seam: functions made once from kio's declaration of a message.

What is written needs only to have the fields, by kio's names; see `penstock.protocol.messages.Struct`.
"""

import dataclasses
import uuid
from collections.abc import Callable, Collection, Iterable
from functools import cache, lru_cache
from struct import Struct as Packer
from typing import Any

from penstock.base.ports import Bytes
from penstock.protocol.schema import FIXED_FORMATS, kind_of

Write = Callable[[bytearray, Any], None]

_ARRAYS_KEPT, _ARRAY_ITEMS_KEPT = 256, 8


@cache
def writer(entity: type) -> Write:
    """The function that appends an `entity` to a bytearray, made once from kio's declaration of it."""
    source = _Source()
    tagged: list[tuple[int, str, Any, Write]] = []
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        write, implicit = _field_writer(field, flexible)
        default = implicit if field.default is dataclasses.MISSING else _plain(field.default)
        if tag is None:
            source.write_field(field, default, write)
        else:
            tagged.append((tag, field.name, default, write))
    tagged.sort(key=lambda item: item[0])
    return source.function(flexible, tagged)


class _Source:
    """The text of a function that writes one message. Fields of fixed size that follow each other are written at
    once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._known: dict[str, Any] = {}
        self._count = 0
        # Those of fixed size that are not written yet.
        self._formats = ""
        self._values: list[str] = []

    def write_field(self, field: "dataclasses.Field[Any]", default: Any, write: Write) -> None:
        number = self._count
        self._count += 1
        self._known[f"d{number}"] = default
        value = f"getattr(message, {field.name!r}, d{number})"
        kind = kind_of(field)
        kafka_type = field.metadata.get("kafka_type")
        if not kind.is_struct and not kind.is_array and kafka_type in FIXED_FORMATS:
            self._formats += FIXED_FORMATS[kafka_type]
            convert = _CONVERSIONS.get(kafka_type)
            if convert is not None:
                self._known[f"c{number}"] = convert
                value = f"c{number}({value})"
            self._values.append(value)
            return
        self._write_fixed()
        self._known[f"w{number}"] = write
        self._lines.append(f"w{number}(out, {value})")

    def _write_fixed(self) -> None:
        if self._values:
            pack = f"p{self._count}"
            self._known[pack] = Packer(">" + self._formats).pack
            self._lines.append(f"out += {pack}({', '.join(self._values)})")
            self._formats, self._values = "", []

    def function(self, flexible: bool, tagged: list[tuple[int, str, Any, Write]]) -> Write:
        self._write_fixed()
        if flexible:
            self._known |= {"write_tagged": _write_tagged, "tagged": tagged}
            self._lines.append("write_tagged(out, message, tagged)" if tagged else "out.append(0)")
        # Names and numbers of kio's declarations only: nothing from outside gets into the text.
        exec("def write_entity(out, message):\n " + "\n ".join([*self._lines, "return"]), self._known)
        made: Write = self._known["write_entity"]
        return made


def _write_tagged(out: bytearray, message: Any, tagged: list[tuple[int, str, Any, Write]]) -> None:
    present = []
    for tag, name, default, write in tagged:
        value = getattr(message, name, default)
        if value is not None and value is not default and _plain(value) != default:
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
    if type(value) is int:
        return value
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
        kafka_type = field.metadata["kafka_type"]
        if kafka_type in FIXED_FORMATS:
            write = _fixed_array_writer(FIXED_FORMATS[kafka_type], _CONVERSIONS.get(kafka_type), flexible)
        else:
            write = _array_writer(_primitive_writer(kafka_type, flexible, False)[0], flexible)
        return write, None if kind.is_nullable else ()
    return _primitive_writer(field.metadata["kafka_type"], flexible, kind.is_nullable)


def _primitive_writer(kafka_type: str, flexible: bool, nullable: bool) -> tuple[Write, Any]:
    if kafka_type in FIXED_FORMATS:
        write = _fixed(FIXED_FORMATS[kafka_type], _CONVERSIONS.get(kafka_type))
        return write, _IMPLICIT.get(kafka_type, -1 if nullable else 0)
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


def _fixed(format: str, convert: Callable[[Any], Any] | None) -> Write:
    pack = Packer(">" + format).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    def write_converted(out: bytearray, value: Any) -> None:
        out += pack(convert(value))  # type: ignore[misc]

    return write if convert is None else write_converted


# Of fields that are not given, where it is no number.
_IMPLICIT = {"bool": False, "uuid": None}
_INT16 = Packer(">h").pack
_INT32 = Packer(">i").pack
_ZERO_UUID = bytes(16)


def _milliseconds(value: Any) -> Any:
    return -1 if value is None else _plain(value)


def _uuid_bytes(value: uuid.UUID | None) -> bytes:
    return _ZERO_UUID if value is None else value.bytes


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _milliseconds,
    "uuid": _uuid_bytes,
}


def _write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        data = value.encode()
        out += _INT16(len(data))
        out += data


def _write_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        data = value.encode()
        if len(data) < 0x7F:
            out.append(len(data) + 1)
        else:
            write_uvarint(out, len(data) + 1)
        out += data


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
    def write_compact(out: bytearray, items: Iterable[Any] | None) -> None:
        if items is None:
            out.append(0)
            return
        sized = items if isinstance(items, (list, tuple)) else list(items)
        if len(sized) < 0x7F:
            out.append(len(sized) + 1)
        else:
            write_uvarint(out, len(sized) + 1)
        for item in sized:
            write_item(out, item)

    def write(out: bytearray, items: Iterable[Any] | None) -> None:
        if items is None:
            out += b"\xff\xff\xff\xff"
            return
        sized = items if isinstance(items, (list, tuple)) else list(items)
        out += _INT32(len(sized))
        for item in sized:
            write_item(out, item)

    return write_compact if flexible else write


def _fixed_array_writer(format: str, convert: Callable[[Any], Any] | None, flexible: bool) -> Write:
    def packed(items: Collection[Any]) -> bytes:
        head = bytearray()
        if flexible:
            write_uvarint(head, len(items) + 1)
        else:
            head += _INT32(len(items))
        return bytes(head) + Packer(">" + format * len(items)).pack(
            *(items if convert is None else map(convert, items))
        )

    # Thousands of partitions have the same few replicas.
    packed_once = lru_cache(_ARRAYS_KEPT)(packed)

    def write(out: bytearray, items: Iterable[Any] | None) -> None:
        if type(items) is tuple and len(items) <= _ARRAY_ITEMS_KEPT:
            out += packed_once(items)
        elif items is None:
            out += b"\0" if flexible else b"\xff\xff\xff\xff"
        else:
            out += packed(list(items))

    return write


def _nullable_struct(write: Write) -> Write:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable
