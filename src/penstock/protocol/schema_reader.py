"""The reading half of the kio seam: functions made once from kio's declaration of a message.

Nothing is made of a length before the bytes are seen to hold as much, so that a few bytes from a stranger never cost
memory. Everything that does not fit is Malformed.
"""

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct as Packer
from struct import error as StructError
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.protocol.primitives import Malformed, read_uvarint, skip_tagged_fields
from penstock.protocol.schema import Struct, kind_of
from penstock.protocol.schema_writer import default_of

# From the bytes and a position: the value and the position after it.
Read = Callable[[bytes, int], tuple[Any, int]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def reader(entity: type, make: type) -> Read:
    """The function that reads an `entity`, as such or in Structs (`make` says which). It raises Malformed, and nothing
    else."""
    read = _entity_reader(entity, make is Struct)

    def read_message(data: bytes, position: int) -> tuple[Any, int]:
        try:
            return read(data, position)
        except (StructError, IndexError, ValueError, OverflowError) as problem:
            raise Malformed(f"{entity.__name__}: {problem}") from problem

    return read_message


@cache
def _entity_reader(entity: type, as_struct: bool) -> Read:
    make: Any = Struct if as_struct else entity
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    absent: dict[str, Any] = {}
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        read, implicit = _field_reader(field, flexible, as_struct)
        if tag is None:
            plain.append((field.name, read))
        else:
            tagged[tag] = (field.name, read)
            absent[field.name] = implicit if field.default is dataclasses.MISSING else field.default

    def read_entity(data: bytes, position: int) -> tuple[Any, int]:
        values = dict(absent)
        for name, read in plain:
            values[name], position = read(data, position)
        if flexible:
            if data[position] == 0:
                position += 1
            else:
                position = _read_tagged(data, position, tagged, values)
        return make(**values), position

    return read_entity


def _read_tagged(data: bytes, position: int, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]) -> int:
    end = skip_tagged_fields(data, position)
    count, position = read_uvarint(data, position)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if tag in tagged:
            name, read = tagged[tag]
            values[name], read_to = read(data, position)
            if read_to != position + size:
                raise Malformed(f"the tagged field {name} does not fill its {size} bytes")
        position += size
    return end


def _field_reader(field: "dataclasses.Field[Any]", flexible: bool, as_struct: bool) -> tuple[Read, Any]:
    """(reader, implicit default) of one field."""
    kind = kind_of(field)
    if kind.is_struct:
        read = _entity_reader(kind.type, as_struct)
        if kind.is_array:
            return _array_reader(read, flexible, kind.is_nullable), ()
        if kind.is_tagged:
            return read, None if kind.is_nullable else default_of(kind.type)
        return (_nullable_struct(read) if kind.is_nullable else read), None
    if kind.is_array:
        read, _ = _primitive_reader(field.metadata["kafka_type"], flexible, False)
        return _array_reader(read, flexible, kind.is_nullable), ()
    return _primitive_reader(field.metadata["kafka_type"], flexible, kind.is_nullable and not kind.is_tagged)


def _primitive_reader(kafka_type: str, flexible: bool, nullable: bool) -> tuple[Read, Any]:
    if kafka_type in _FIXED:
        return _FIXED[kafka_type], 0
    if kafka_type == "bool":
        return _read_bool, False
    if kafka_type == "uuid":
        return _read_uuid, None
    if kafka_type == "error_code":
        return _converted(_FIXED["int16"], ErrorCode), ErrorCode.none
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        number = _FIXED["int32" if kafka_type == "timedelta_i32" else "int64"]
        return _converted(number, lambda value: timedelta(milliseconds=value)), timedelta()
    if kafka_type == "datetime_i64":
        return _converted(_FIXED["int64"], _nullable_datetime if nullable else _datetime), None
    if kafka_type == "string":
        return _converted(_raw_reader(flexible, _LENGTH_16, nullable), _text), None if nullable else ""
    if kafka_type in ("bytes", "records"):
        return _raw_reader(flexible, _LENGTH_32, nullable), None if nullable else b""
    raise TypeError(f"kio has a type that this seam does not know: {kafka_type}")


def _fixed(format: str) -> Read:
    packer = Packer(format)
    unpack, size = packer.unpack_from, packer.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


_FIXED: dict[str, Read] = {
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "uint8": _fixed(">B"),
    "uint16": _fixed(">H"),
    "uint32": _fixed(">I"),
    "uint64": _fixed(">Q"),
    "float64": _fixed(">d"),
}
_LENGTH_16 = Packer(">h")
_LENGTH_32 = Packer(">i")
_ZERO_UUID = bytes(16)
_TEXT_BYTES_MAX = 0x7FFF


def _converted(read: Read, convert: Callable[[Any], Any]) -> Read:
    def read_converted(data: bytes, position: int) -> tuple[Any, int]:
        value, position = read(data, position)
        return convert(value), position

    return read_converted


def _text(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    # Kafka's limit, also where the length field could say more.
    if len(raw) > _TEXT_BYTES_MAX:
        raise Malformed(f"a text of {len(raw)} bytes is longer than {_TEXT_BYTES_MAX}")
    return raw.decode()


def _datetime(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _nullable_datetime(milliseconds: int) -> datetime | None:
    return None if milliseconds == -1 else _datetime(milliseconds)


def _read_bool(data: bytes, position: int) -> tuple[bool, int]:
    return data[position] != 0, position + 1


def _read_uuid(data: bytes, position: int) -> tuple[uuid.UUID | None, int]:
    raw = data[position : position + 16]
    return None if raw == _ZERO_UUID else uuid.UUID(bytes=raw), position + 16


def _raw_reader(flexible: bool, length_packer: Packer, nullable: bool) -> Read:
    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        if flexible:
            length, position = read_uvarint(data, position)
            length -= 1
        else:
            (length,) = length_packer.unpack_from(data, position)
            position += length_packer.size
        if length < 0:
            if not nullable or length != -1:
                raise Malformed("a string or byte field is null where it may not be")
            return None, position
        end = position + length
        if end > len(data):
            raise Malformed(f"{length} bytes are announced where {len(data) - position} are left")
        return data[position:end], end

    return read


def _array_reader(read_item: Read, flexible: bool, nullable: bool) -> Read:
    def read(data: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
        if flexible:
            count, position = read_uvarint(data, position)
            count -= 1
        else:
            (count,) = _LENGTH_32.unpack_from(data, position)
            position += 4
        if count < 0:
            if not nullable or count != -1:
                raise Malformed("a list is null where it may not be")
            return None, position
        # Every item takes a byte at least.
        if count > len(data) - position:
            raise Malformed(f"{count} items are announced where {len(data) - position} bytes are left")
        items = []
        for _ in range(count):
            item, position = read_item(data, position)
            items.append(item)
        return tuple(items), position

    return read


def _nullable_struct(read: Read) -> Read:
    def read_nullable(data: bytes, position: int) -> tuple[Any, int]:
        if data[position] == 0xFF:
            return None, position + 1
        return read(data, position + 1)

    return read_nullable
