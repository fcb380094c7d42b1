r"""Format strings for records, rpk's: percent escapes, brace modifiers, backslash escapes.

    %t topic      %T its length    %p partition   %o offset       %e leader epoch
    %k key        %K its length    %v value       %V its length   %d timestamp (milliseconds)
    %h{...}       what to print for each header, with %k %K %v %V of the header      %H number of headers
    %i how many records came before           %% %{ %} themselves          \t \n \r \\ \xNN as usual

    text    %v{hex} %v{base64}
    number  %o{hex64} ... {hex4}, {big64} ... {big8} and {little64} ... {little8} as bytes
    time    %d{strftime[%Y-%m-%d %H:%M:%S]}, in UTC, besides the numbers' modifiers

The parser is shared with `input_formats`, which reads records instead of writing them.
"""

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class BadFormat(ValueError):
    """The format string makes no sense; the message says where."""


class PrintedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    leader_epoch: int = -1


@dataclass(frozen=True)
class Field:
    letter: str
    modifier: str = ""


Part = bytes | Field
Write = Callable[[Any, int], bytes]

_LETTERS = "tTkKvVhHpoedi"
_BACKSLASHES = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\"}
NUMBER_PACKERS = {
    f"{name}{bits}": struct.Struct(order + letter)
    for name, order in (("big", ">"), ("little", "<"))
    for bits, letter in ((64, "Q"), (32, "I"), (16, "H"), (8, "B"))
}
_HEX_DIGITS = {"hex64": 16, "hex32": 8, "hex16": 4, "hex8": 2, "hex4": 1}


def parse_format(template: str, letters: str = _LETTERS) -> tuple[Part, ...]:
    """The template as literal bytes and fields, neighbouring literals joined."""
    parts: list[Part] = []
    position = 0
    while position < len(template):
        part, position = _next_part(template, position, letters)
        if isinstance(part, bytes) and parts and isinstance(parts[-1], bytes):
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(parts)


def _next_part(template: str, position: int, letters: str) -> tuple[Part, int]:
    character = template[position]
    following = template[position + 1 : position + 2]
    if character == "\\":
        return _backslash(template, position)
    if character != "%":
        return character.encode(), position + 1
    if following and following in "%{}":
        return following.encode(), position + 2
    if not following or following not in letters:
        known = " ".join(f"%{letter}" for letter in letters)
        raise BadFormat(f"'%{following}' in the format is not an escape; there are {known} %% %{{ %}}")
    if template[position + 2 : position + 3] != "{":
        return Field(following), position + 2
    end = _closing_brace(template, position + 2)
    return Field(following, template[position + 3 : end]), end + 1


def _backslash(template: str, position: int) -> tuple[bytes, int]:
    following = template[position + 1 : position + 2]
    if following == "x":
        digits = template[position + 2 : position + 4]
        if not re.fullmatch(r"[0-9a-fA-F]{2}", digits):
            raise BadFormat(r"\x in the format needs two hexadecimal digits after it")
        return bytes.fromhex(digits), position + 4
    if following not in _BACKSLASHES:
        raise BadFormat(rf"'\{following}' in the format is not an escape; there are \t \n \r \\ \xNN")
    return _BACKSLASHES[following], position + 2


def _closing_brace(template: str, opening: int) -> int:
    depth = 0
    position = opening
    while position < len(template):
        if template[position] == "%" and template[position + 1 : position + 2] in ("{", "}", "%"):
            position += 1
        elif template[position] == "{":
            depth += 1
        elif template[position] == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise BadFormat(f"the brace after '{template[:opening]}' is never closed")


def compile_output(template: str) -> Callable[[PrintedRecord, int], bytes]:
    """A function of a record and of the number of records before it, to the bytes to print."""
    writes = [_writer(part) for part in parse_format(template)]

    def write(record: PrintedRecord, index: int) -> bytes:
        return b"".join([write_part(record, index) for write_part in writes])

    return write


def _writer(part: Part) -> Write:
    if isinstance(part, bytes):
        return lambda record, index: part
    modifier = part.modifier
    match part.letter:
        case "t":
            return _text(lambda record: record.topic.encode(), modifier)
        case "k":
            return _text(lambda record: record.key, modifier)
        case "v":
            return _text(lambda record: record.value, modifier)
        case "T":
            return _number(lambda record, index: len(record.topic.encode()), modifier)
        case "K":
            return _number(lambda record, index: len(record.key or b""), modifier)
        case "V":
            return _number(lambda record, index: len(record.value or b""), modifier)
        case "H":
            return _number(lambda record, index: len(record.headers), modifier)
        case "p":
            return _number(lambda record, index: record.partition, modifier)
        case "o":
            return _number(lambda record, index: record.offset, modifier)
        case "e":
            return _number(lambda record, index: record.leader_epoch, modifier)
        case "i":
            return _number(lambda record, index: index, modifier)
        case "d":
            return _timestamp(modifier)
    return _headers(modifier)


def _text(get: Callable[[Any], bytes | None], modifier: str) -> Write:
    match modifier:
        case "":
            return lambda record, index: get(record) or b""
        case "hex":
            return lambda record, index: (get(record) or b"").hex().encode()
        case "base64":
            return lambda record, index: base64.b64encode(get(record) or b"")
    raise BadFormat(f"text cannot be printed as '{modifier}'; there are hex and base64")


def _number(get: Callable[[Any, int], int], modifier: str) -> Write:
    if modifier in ("", "ascii"):
        return lambda record, index: str(get(record, index)).encode()
    if modifier in NUMBER_PACKERS:
        packer = NUMBER_PACKERS[modifier]
        mask = (1 << 8 * packer.size) - 1
        return lambda record, index: packer.pack(get(record, index) & mask)
    if modifier in _HEX_DIGITS:
        digits = _HEX_DIGITS[modifier]
        return lambda record, index: f"{get(record, index) & ((1 << 4 * digits) - 1):0{digits}x}".encode()
    known = ", ".join(["ascii", *_HEX_DIGITS, *NUMBER_PACKERS])
    raise BadFormat(f"a number cannot be printed as '{modifier}'; there are {known}")


def _timestamp(modifier: str) -> Write:
    pattern = re.fullmatch(r"strftime\[(.*)\]", modifier, re.DOTALL)
    if not pattern:
        return _number(lambda record, index: record.timestamp_ms, modifier)

    def write(record: PrintedRecord, index: int) -> bytes:
        moment = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
        return moment.strftime(pattern[1]).encode()

    return write


class _Header(NamedTuple):
    key: bytes
    value: bytes | None


def _headers(modifier: str) -> Write:
    if not modifier:
        raise BadFormat("%h needs to know what to print of each header, for instance %h{%k=%v }")
    writes = [_writer(part) for part in parse_format(modifier, "kKvV")]

    def write(record: PrintedRecord, index: int) -> bytes:
        headers = [_Header(name.encode(), value) for name, value in record.headers]
        return b"".join([write_part(header, index) for header in headers for write_part in writes])

    return write


def record_as_json(record: PrintedRecord, indent: int | None) -> bytes:
    """One object, on one line without an indent."""
    fields = {"topic": record.topic} | record_fields(record.key, record.value, record.headers)
    fields |= {"timestamp": record.timestamp_ms, "partition": record.partition, "offset": record.offset}
    return json.dumps(fields, indent=indent, ensure_ascii=False).encode() + b"\n"


def record_fields(key: bytes | None, value: bytes | None, headers: Headers) -> dict[str, Any]:
    """As JSON has them. Bytes that are not UTF-8 come as base64 under `key_base64`, `value_base64`: nothing is lost."""
    fields: dict[str, Any] = {}
    _put_bytes(fields, "key", key)
    _put_bytes(fields, "value", value)
    if headers:
        fields["headers"] = [_header_as_json(name, header_value) for name, header_value in headers]
    return fields


def _header_as_json(name: str, value: bytes | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"key": name}
    _put_bytes(fields, "value", value)
    return fields


def _put_bytes(fields: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data or b"").decode()
