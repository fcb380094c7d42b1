"""The reading half of the kio seam: functions made once from kio's declaration of a message, as dataclasses makes its
own from a class: nodes read thousands of messages a second, and what is looped over at each would be most of the work.

Nothing is made of a length before the bytes are seen to hold as much, so that a few bytes from a stranger never cost
memory. Everything that does not fit is Malformed.
"""

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from struct import Struct as Packer
from struct import error as StructError
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.protocol.primitives import Malformed, read_uvarint
from penstock.protocol.schema import FIXED_FORMATS, Struct, kind_of
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
    source = _Source()
    names: list[str] = []
    tagged: dict[int, tuple[str, Read]] = {}
    absent: dict[str, Any] = {}
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        if tag is None:
            names.append(field.name)
            source.read_field(field, flexible, as_struct)
        else:
            read, implicit = _field_reader(field, flexible, as_struct)
            tagged[tag] = (field.name, read)
            absent[field.name] = implicit if field.default is dataclasses.MISSING else field.default
    return source.function(names, flexible, tagged, absent, None if as_struct else entity)


class _Source:
    """The text of a function that reads one message. Fields of fixed size that follow each other are read at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._known: dict[str, Any] = {"Struct": Struct, "new": Struct.__new__}
        self._count = 0
        # Those of fixed size that are not read yet.
        self._formats = ""
        self._targets: list[str] = []
        self._conversions: list[str] = []

    def read_field(self, field: "dataclasses.Field[Any]", flexible: bool, as_struct: bool) -> None:
        target = f"v{self._count}"
        self._count += 1
        kind = kind_of(field)
        kafka_type = field.metadata.get("kafka_type")
        if not kind.is_struct and not kind.is_array and kafka_type in FIXED_FORMATS:
            self._formats += FIXED_FORMATS[kafka_type]
            self._targets.append(target)
            convert = _conversion(kafka_type, kind.is_nullable)
            if convert is not None:
                self._conversions.append(f"{target} = c{target}({target})")
                self._known[f"c{target}"] = convert
            return
        self._read_fixed()
        self._known[f"r{target}"], _ = _field_reader(field, flexible, as_struct)
        self._lines.append(f"{target}, position = r{target}(data, position)")

    def _read_fixed(self) -> None:
        if self._targets:
            packer = Packer(">" + self._formats)
            unpack = f"u{self._targets[0]}"
            self._known[unpack] = packer.unpack_from
            self._lines.append(f"{', '.join(self._targets)}, = {unpack}(data, position)")
            self._lines.append(f"position += {packer.size}")
            self._lines += self._conversions
            self._formats, self._targets, self._conversions = "", [], []

    def function(
        self,
        names: list[str],
        flexible: bool,
        tagged: dict[int, tuple[str, Read]],
        absent: dict[str, Any],
        entity: type | None,
    ) -> Read:
        """`entity` is None where it is read as a Struct."""
        self._read_fixed()
        values = [f"{name!r}: v{at}" for at, name in enumerate(names)]
        for at, (name, value) in enumerate(absent.items()):
            self._known[f"a{at}"] = value
            values.append(f"{name!r}: a{at}")
        self._lines.append(f"values = {{{', '.join(values)}}}")
        if flexible:
            self._known |= {"read_tagged": _read_tagged, "tagged": tagged}
            self._lines.append(
                "position = position + 1 if data[position] == 0 else read_tagged(data, position, tagged, values)"
            )
        if entity is None:
            self._lines += ["made = new(Struct)", "made.__dict__ = values", "return made, position"]
        else:
            self._known["make"] = entity
            self._lines.append("return make(**values), position")
        # Names and numbers of kio's declarations only: nothing from outside gets into the text.
        exec("def read_entity(data, position):\n " + "\n ".join(self._lines), self._known)
        made: Read = self._known["read_entity"]
        return made


def _read_tagged(data: bytes, position: int, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]) -> int:
    count, position = read_uvarint(data, position)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if end > len(data):
            raise Malformed("a tagged field is longer than its message")
        if tag in tagged:
            name, read = tagged[tag]
            values[name], read_to = read(data, position)
            if read_to != end:
                raise Malformed(f"the tagged field {name} does not fill its {size} bytes")
        position = end
    return position


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
    if kafka_type in FIXED_FORMATS:
        return _fixed(FIXED_FORMATS[kafka_type], _conversion(kafka_type, nullable)), _IMPLICIT.get(kafka_type, 0)
    if kafka_type == "string":
        read = _compact_string_reader(nullable) if flexible else _converted(_raw_reader(_LENGTH_16, nullable), _text)
        return read, None if nullable else ""
    if kafka_type in ("bytes", "records"):
        read = _compact_raw_reader(nullable) if flexible else _raw_reader(_LENGTH_32, nullable)
        return read, None if nullable else b""
    raise TypeError(f"kio has a type that this seam does not know: {kafka_type}")


def _conversion(kafka_type: str, nullable: bool) -> Callable[[Any], Any] | None:
    """What makes a value of the number or the bytes that stand for it."""
    if kafka_type == "datetime_i64":
        return _nullable_datetime if nullable else _datetime
    return _CONVERSIONS.get(kafka_type)


def _fixed(format: str, convert: Callable[[Any], Any] | None) -> Read:
    packer = Packer(">" + format)
    unpack, size = packer.unpack_from, packer.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read if convert is None else _converted(read, convert)


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


# The ids of topics and directories come again and again, and a UUID takes a while to make.
@lru_cache(maxsize=4096)
def _uuid(raw: bytes) -> uuid.UUID | None:
    return None if raw == _ZERO_UUID else uuid.UUID(bytes=raw)


_ERRORS = {int(error): error for error in ErrorCode}
_NO_TIME = timedelta()


def _error(number: int) -> ErrorCode:
    return _ERRORS[number] if number in _ERRORS else ErrorCode(number)


def _timedelta(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds) if milliseconds else _NO_TIME


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "uuid": _uuid,
    "error_code": _error,
    "timedelta_i32": _timedelta,
    "timedelta_i64": _timedelta,
}
# Of tagged fields that are not there.
_IMPLICIT = {
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": _NO_TIME,
    "timedelta_i64": _NO_TIME,
    "datetime_i64": None,
}


def _raw_reader(length_packer: Packer, nullable: bool) -> Read:
    unpack, size = length_packer.unpack_from, length_packer.size

    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        (length,) = unpack(data, position)
        return _take(data, position + size, length, nullable)

    return read


def _compact_raw_reader(nullable: bool) -> Read:
    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        length, position = read_uvarint(data, position)
        return _take(data, position, length - 1, nullable)

    return read


def _take(data: bytes, position: int, length: int, nullable: bool) -> tuple[bytes | None, int]:
    if length < 0:
        if not nullable or length != -1:
            raise Malformed("a string or byte field is null where it may not be")
        return None, position
    end = position + length
    if end > len(data):
        raise Malformed(f"{length} bytes are announced where {len(data) - position} are left")
    return data[position:end], end


def _compact_string_reader(nullable: bool) -> Read:
    read_long = _converted(_compact_raw_reader(nullable), _text)

    def read(data: bytes, position: int) -> tuple[str | None, int]:
        end = position + data[position]
        # Nearly all of them: the length is one byte, and all is there.
        if position < end < position + 0x80 and end <= len(data):
            return data[position + 1 : end].decode(), end
        return read_long(data, position)

    return read


def _array_reader(read_item: Read, flexible: bool, nullable: bool) -> Read:
    def read(data: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
        if flexible:
            count = data[position] - 1
            if count < 0x7F:
                position += 1
            else:
                count, position = read_uvarint(data, position)
                count -= 1
        else:
            (count,) = _LENGTH_32.unpack_from(data, position)
            position += 4
        if not count:
            return (), position
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
