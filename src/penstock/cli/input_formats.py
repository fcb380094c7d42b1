r"""Reading records from text or bytes by a format string: the other direction of `formats`.

    %k key   %v value   %p partition   %d timestamp in milliseconds   %K %V lengths   %H header count   %h{...} a header

Text ends where the literal after it begins (`%k:%v\n`), or is as long as a length before it said (`%K{big32}%k`), or
goes on to the end of the input (`%v` alone). Headers need their count first: `%H %h{%k=%v;}%v\n`. `json` reads lines
as `consume -f json` prints them, but leaves the partition to the partitioner and the offset to the broker.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from penstock.cli.formats import NUMBER_PACKERS, BadFormat, Field, Headers, Part, parse_format


class InputRecord(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class InputMismatch(ValueError):
    """The input is not what the format says; the message says which record and what was missing."""


Slots = dict[str, Any]
Step = Callable[["_Source", Slots], None]

_NAMES = {"k": "key", "v": "value", "p": "partition", "d": "timestamp", "H": "header count", "h": "headers"}
_NAMES |= {"K": "key length", "V": "value length"}


class _Source:
    """The input, buffered: chunks as they arrive, so that a record typed at a terminal is not waited behind."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""
        self._position = 0

    def _more(self) -> bool:
        chunk = next(self._chunks, b"")
        self._buffer = self._buffer[self._position :] + chunk
        self._position = 0
        return bool(chunk)

    def ended(self) -> bool:
        return self._position == len(self._buffer) and not self._more()

    def until(self, delimiter: bytes, end_will_do: bool) -> bytes:
        searched = 0
        while True:
            found = self._buffer.find(delimiter, self._position + searched)
            if found >= 0:
                data = self._buffer[self._position : found]
                self._position = found + len(delimiter)
                return data
            searched = max(0, len(self._buffer) - self._position - len(delimiter) + 1)
            if not self._more():
                break
        if not end_will_do:
            raise InputMismatch(f"no {_shown(delimiter)} was found before the end of the input")
        return self.rest()

    def exactly(self, count: int) -> bytes:
        while len(self._buffer) - self._position < count:
            if not self._more():
                left = len(self._buffer) - self._position
                raise InputMismatch(f"{count} bytes were expected but only {left} are left")
        data = self._buffer[self._position : self._position + count]
        self._position += count
        return data

    def rest(self) -> bytes:
        pieces = [self._buffer[self._position :], *self._chunks]
        self._buffer, self._position = b"", 0
        return b"".join(pieces)


def compile_input(template: str) -> Callable[[Iterable[bytes]], Iterator[InputRecord]]:
    """A function from the input, in chunks, to its records. Raises BadFormat; what it returns raises InputMismatch."""
    if template == "json":
        return lambda chunks: _read_json(_Source(chunks))
    steps = _compile(parse_format(template, "kKvVpdHh"))
    return lambda chunks: _read(steps, _Source(chunks))


def _read(steps: list[Step], source: _Source) -> Iterator[InputRecord]:
    number = 0
    while not source.ended():
        number += 1
        slots: Slots = {}
        try:
            for step in steps:
                step(source, slots)
        except InputMismatch as error:
            raise InputMismatch(f"record {number} does not fit the format: {error}") from error
        headers = tuple((name.decode(errors="replace"), value) for name, value in slots.get("h", ()))
        yield InputRecord(slots.get("k"), slots.get("v"), headers, slots.get("p"), slots.get("d"))


def _compile(parts: tuple[Part, ...], is_nested: bool = False) -> list[Step]:
    if not any(isinstance(part, Field) for part in parts):
        raise BadFormat("the format has no field to read; %v\\n reads a value from each line")
    steps: list[Step] = []
    sized: set[str] = set()
    last = parts[-1]
    # With records that are lines, a missing separator must not swallow the next line.
    is_lines = not is_nested and isinstance(last, bytes) and last.endswith(b"\n")
    position = 0
    while position < len(parts):
        part = parts[position]
        following = parts[position + 1] if position + 1 < len(parts) else None
        parts_after = len(parts) - position - 1
        is_final = not is_nested and (parts_after == 0 or (parts_after == 1 and isinstance(following, bytes)))
        position += 1
        if isinstance(part, bytes):
            steps.append(_expect(part, end_will_do=not is_nested and position == len(parts)))
            continue
        delimiter = following if isinstance(following, bytes) else None
        step, used_delimiter = _field_step(part, delimiter, sized, is_final, is_lines)
        steps.append(step)
        if used_delimiter:
            position += 1
        if part.letter in "KVH":
            sized.add(part.letter.lower())
    return steps


def _field_step(
    field: Field, delimiter: bytes | None, sized: set[str], is_final: bool, is_lines: bool
) -> tuple[Step, bool]:
    """How to read one field, and whether that takes the literal after it too."""
    letter, name = field.letter, _NAMES[field.letter]
    if letter == "h":
        return _headers_step(field, sized), False
    if letter in "kv":
        convert = _text_conversion(field.modifier)
        if letter in sized:
            return _sized_text(letter, convert), False
        if delimiter is None and not is_final:
            raise BadFormat(f"nothing says where the {name} ends: put text after %{letter}, or its length before it")
        return _delimited(letter, delimiter, convert, is_final, is_lines), delimiter is not None
    if field.modifier in NUMBER_PACKERS:
        return _packed_number(letter, field.modifier), False
    if field.modifier not in ("", "ascii"):
        raise BadFormat(f"a number cannot be read as '{field.modifier}'; there are ascii, {', '.join(NUMBER_PACKERS)}")
    if delimiter is None and not is_final:
        raise BadFormat(f"nothing says where the {name} ends: put text after %{letter}, or use %{letter}{{big32}}")
    return _delimited(letter, delimiter, _integer(name), is_final, is_lines), delimiter is not None


def _expect(literal: bytes, end_will_do: bool) -> Step:
    def step(source: _Source, slots: Slots) -> None:
        if end_will_do and source.ended():
            return
        found = source.exactly(len(literal))
        if found != literal:
            raise InputMismatch(f"expected {_shown(literal)}, found {_shown(found)}")

    return step


def _delimited(
    letter: str, delimiter: bytes | None, convert: Callable[[bytes], Any], is_final: bool, is_lines: bool
) -> Step:
    watch_lines = is_lines and delimiter is not None and b"\n" not in delimiter

    def step(source: _Source, slots: Slots) -> None:
        data = source.rest() if delimiter is None else source.until(delimiter, is_final)
        if watch_lines and b"\n" in data:
            line = data.partition(b"\n")[0]
            raise InputMismatch(f"its line {_shown(line)} has no {_shown(delimiter or b'')}")
        slots[letter] = convert(data)

    return step


def _sized_text(letter: str, convert: Callable[[bytes], Any]) -> Step:
    def step(source: _Source, slots: Slots) -> None:
        length = slots[letter.upper()]
        if length < 0:
            raise InputMismatch(f"the {_NAMES[letter]} cannot be {length} bytes long")
        slots[letter] = convert(source.exactly(length))

    return step


def _packed_number(letter: str, modifier: str) -> Step:
    packer = NUMBER_PACKERS[modifier]

    def step(source: _Source, slots: Slots) -> None:
        (slots[letter],) = packer.unpack(source.exactly(packer.size))

    return step


def _headers_step(field: Field, sized: set[str]) -> Step:
    if "h" not in sized:
        raise BadFormat("%h needs the number of headers before it: %H")
    steps = _compile(parse_format(field.modifier, "kKvV"), is_nested=True)

    def step(source: _Source, slots: Slots) -> None:
        headers = []
        for _ in range(slots["H"]):
            header: Slots = {}
            for read in steps:
                read(source, header)
            headers.append((header.get("k", b""), header.get("v")))
        slots["h"] = headers

    return step


def _integer(name: str) -> Callable[[bytes], int]:
    def convert(data: bytes) -> int:
        try:
            return int(data)
        except ValueError as error:
            raise InputMismatch(f"the {name} {_shown(data)} is not a number") from error

    return convert


def _text_conversion(modifier: str) -> Callable[[bytes], bytes]:
    match modifier:
        case "":
            return lambda data: data
        case "hex":
            return _checked(binascii.unhexlify, "hexadecimal")
        case "base64":
            return _checked(lambda data: base64.b64decode(data, validate=True), "base64")
    raise BadFormat(f"text cannot be read as '{modifier}'; there are hex and base64")


def _checked(convert: Callable[[bytes], bytes], name: str) -> Callable[[bytes], bytes]:
    def checked(data: bytes) -> bytes:
        try:
            return convert(data)
        except binascii.Error as error:
            raise InputMismatch(f"{_shown(data)} is not {name}") from error

    return checked


def _shown(data: bytes) -> str:
    text = repr(data[:40])[1:]
    return text + "..." if len(data) > 40 else text


def _read_json(source: _Source) -> Iterator[InputRecord]:
    number = 0
    while not source.ended():
        line = source.until(b"\n", end_will_do=True)
        number += 1
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            headers = tuple((header["key"], _json_bytes(header, "value")) for header in fields.get("headers") or ())
            timestamp_ms = None if fields.get("timestamp") is None else int(fields["timestamp"])
            key, value = _json_bytes(fields, "key"), _json_bytes(fields, "value")
            record = InputRecord(key, value, headers, None, timestamp_ms)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputMismatch(f"line {number} is not a record as `consume -f json` prints it: {error}") from error
        yield record


def _json_bytes(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    # A nested document is what people write by hand: take it as its JSON text.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
