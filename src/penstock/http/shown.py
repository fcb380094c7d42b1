"""Messages as people see them: keys and values decoded as well as can be, without being told how; filters on that.

What is framed with a schema id that the registry knows is decoded by it; then JSON is tried, then text, then base64.
"""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.http.errors import ApiError
from penstock.http.schema_values import framed_schema_id

if TYPE_CHECKING:
    from penstock.http.schema_values import SchemaValues

_FILTER_CHARACTERS_MAX = 4096
_decode = msgspec.json.Decoder().decode

# Decodes one key or value: (encoding, value, schema id).
Decode = Callable[[bytes], tuple[str, Any, int | None]]


class Part(msgspec.Struct, omit_defaults=True):
    """A key or a value. `encoding`: null, json, text, base64, avro, protobuf or jsonschema."""

    encoding: str
    value: Any
    size: int
    schema_id: int | None = None


class ShownMessage(msgspec.Struct):
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Part
    value: Part
    headers: list[tuple[str, str | None]]


def decode_plain(data: bytes) -> tuple[str, Any, int | None]:
    first = data[:1]
    if first in _JSON_FIRST:
        try:
            return "json", _decode(data), None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(data).decode(), None
    if "\x00" in text:
        return "base64", base64.b64encode(data).decode(), None
    return "text", text, None


# Objects, lists and strings. A bare number or word is shown as text.
_JSON_FIRST = (b"{", b"[", b'"')


async def decoder_for(values: "SchemaValues | None", found: list[bytes | None]) -> Decode:
    """Knows the schemas of what was found."""
    if values is None or all(framed_schema_id(one) is None for one in found):
        return decode_plain
    present = await values.presenter_for(found)
    formats = {}
    for schema_id in {framed_schema_id(one) for one in found} - {None}:
        try:
            formats[schema_id] = (await values.codec(schema_id)).format.value  # type: ignore[arg-type]
        except ApiError:
            continue

    def decode(data: bytes) -> tuple[str, Any, int | None]:
        schema_id = framed_schema_id(data)
        if schema_id in formats:
            try:
                return formats[schema_id], _decode(bytes(present(data))), schema_id
            except ValueError:
                pass
        return decode_plain(data)

    return decode


def shown(message: Any, decode: Decode) -> ShownMessage:
    kind, timestamp = message.timestamp()
    return ShownMessage(
        message.partition(),
        message.offset(),
        timestamp,
        _TIMESTAMP_TYPES.get(kind, "none"),
        _part(message.key(), decode),
        _part(message.value(), decode),
        [(name, None if value is None else value.decode(errors="replace")) for name, value in message.headers() or ()],
    )


_TIMESTAMP_TYPES = {1: "create", 2: "append"}


def _part(data: bytes | None, decode: Decode) -> Part:
    if data is None:
        return Part("null", None, 0)
    encoding, value, schema_id = decode(data)
    return Part(encoding, value, len(data), schema_id)


class Filter:
    """A CEL expression over key, value, headers, partition, offset, timestamp and topic."""

    def __init__(self, expression: str) -> None:
        """Raises ApiError."""
        import cel

        if len(expression) > _FILTER_CHARACTERS_MAX:
            raise ApiError(422, f"a filter has at most {_FILTER_CHARACTERS_MAX} characters", "Make it shorter.")
        try:
            self._program = cel.compile(expression)
        except ValueError as problem:
            reason = str(problem).partition("ERROR: ")[2] or str(problem)
            raise ApiError(
                42210, f"the filter is not CEL: {reason[:300]}", 'Like value.amount > 10 && key.startsWith("a").'
            ) from problem
        self.errors = 0
        self.first_error = ""

    def passes(self, topic: str, message: ShownMessage) -> bool:
        """What cannot be evaluated, for example because a field is missing, does not pass; it is counted."""
        variables = {
            "key": message.key.value,
            "value": message.value.value,
            "headers": dict(message.headers),
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.timestamp,
            "topic": topic,
        }
        try:
            return self._program.execute(variables) is True
        except Exception as problem:
            # The library raises what fits: KeyError, TypeError, RuntimeError, ValueError.
            self.errors += 1
            self.first_error = self.first_error or f"{type(problem).__name__}: {problem}"[:200]
            return False
