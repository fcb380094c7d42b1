"""Records as JSON shows them, and back: keys and headers are text, values are in the format that was asked for.

Bytes that are not what the format says are never lost: they come as base64 beside it (`key_base64`, `value_base64`,
`headers_base64`).
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.http.errors import ApiError
from penstock.http.formats import Format
from penstock.http.producing import Headers

_raw = msgspec.json.Decoder(msgspec.Raw).decode

HeaderTexts = dict[str, str | list[str | None] | None]


class Message(msgspec.Struct, omit_defaults=True):
    """What poll and tail give. Fields that are never left out come first and have no default."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: Any
    timestamp: int
    headers: HeaderTexts
    key_base64: bytes | None = None
    value_base64: bytes | None = None
    headers_base64: dict[str, bytes] | None = None
    problem: str | None = None


# Makes a value presentable; raises ValueError, with a reason, where it is not what it should be.
Present = Callable[[bytes], Any]


def _as_text(value: bytes) -> str:
    return value.decode()


def _as_json(value: bytes) -> msgspec.Raw:
    try:
        checked = _raw(value)
        bytes(checked).decode()
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValueError(f"not JSON: {problem}") from problem
    return checked


def _as_base64(value: bytes) -> bytes:
    return value


_PRESENT: dict[Format, Present] = {Format.BASE64: _as_base64, Format.TEXT: _as_text, Format.JSON: _as_json}


def plain_presenter(format: Format) -> Present:
    return _PRESENT[format]


def messages_as_json(found: list[Any], present: Present) -> list[Message]:
    """librdkafka's messages. Hot: 100,000 of them a second."""
    messages = []
    as_is = present is _as_base64
    for one in found:
        key = one.key()
        value = one.value()
        headers = one.headers()
        message = Message(
            one.topic(),
            one.partition(),
            one.offset(),
            None,
            value,
            one.timestamp()[1],
            _NO_HEADERS if headers is None else {},
        )
        if key is not None:
            try:
                message.key = key.decode()
            except UnicodeDecodeError:
                message.key_base64 = key
        if headers is not None:
            set_headers(message, headers)
        if not as_is and value is not None:
            try:
                message.value = present(value)
            except ValueError as problem:
                message.value, message.value_base64 = None, value
                message.problem = f"the value is {'not UTF-8' if isinstance(problem, UnicodeError) else problem}"
        messages.append(message)
    return messages


_NO_HEADERS: HeaderTexts = {}


def set_headers(message: Message, headers: list[tuple[str, bytes | None]]) -> None:
    """A name that comes twice has a list."""
    texts: HeaderTexts = message.headers
    for name, value in headers:
        try:
            text = None if value is None else value.decode()
        except UnicodeDecodeError:
            assert value is not None
            message.headers_base64 = (message.headers_base64 or {}) | {name: value}
            continue
        if name not in texts:
            texts[name] = text
            continue
        earlier = texts[name]
        texts[name] = [*earlier, text] if isinstance(earlier, list) else [earlier, text]


def headers_of(texts: HeaderTexts | None) -> Headers | None:
    """For librdkafka."""
    if not texts:
        return None
    headers: Headers = []
    for name, given in texts.items():
        if not name or "\x00" in name:
            raise ApiError(422, f"{name[:80]!r} cannot be the name of a header", "Name it, and use no NUL in it.")
        for text in given if isinstance(given, list) else [given]:
            headers.append((name, None if text is None else text.encode()))
    return headers
