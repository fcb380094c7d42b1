"""Request bodies: read within the size limit, unpacked within it, decoded into typed structs; and JSON answers.

A body is refused before it is in memory when it says that it is too large, and while it arrives when it does not say.
A gzip body may unpack to the limit and no further, so a bomb costs no more than an honest body.
"""

import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.http.errors import ApiError, bad_request

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_GZIP_OR_ZLIB_WINDOW = 47


class Json(Response):
    """msgspec's encoder; other media types of the same shape by `media_type`."""

    media_type = "application/json"

    def __init__(
        self,
        content: Any,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        super().__init__(_encode(content), status_code, headers, media_type)


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Raises ApiError."""
    length = request.headers.get("content-length")
    if length is not None and (not length.isdecimal() or int(length) > bytes_max):
        raise _too_large(bytes_max)
    pieces = []
    size = 0
    receive = request.receive
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("the connection ended before the body did", "Send the whole body.")
        piece = message.get("body", b"")
        size += len(piece)
        if size > bytes_max:
            raise _too_large(bytes_max)
        pieces.append(piece)
        if not message.get("more_body", False):
            break
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    encoding = request.headers.get("content-encoding")
    return body if encoding is None else _unpacked(body, encoding.strip().lower(), bytes_max)


def _unpacked(body: bytes, encoding: str, bytes_max: int) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ApiError(415, f"the content encoding '{encoding[:40]}' is not known", "Send gzip, deflate or plain JSON.")
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB_WINDOW)
    try:
        unpacked = unpacker.decompress(body, bytes_max + 1)
    except zlib.error as problem:
        raise bad_request("the body is not what its content encoding says", f"Send {encoding}.") from problem
    if len(unpacked) > bytes_max:
        raise _too_large(bytes_max)
    if not unpacker.eof or unpacker.unused_data:
        raise bad_request(
            "the compressed body is cut off, or something follows it", f"Send one whole {encoding} stream."
        )
    return unpacked


def decode_json(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """Raises ApiError, with the path of the bad value."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise ApiError(422, f"the body has not the shape that this wants: {problem}", "See /openapi.") from problem
    except msgspec.DecodeError as problem:
        raise bad_request(f"the body is not JSON: {problem}", "Send JSON in UTF-8.") from problem
    except RecursionError as problem:
        raise bad_request("the JSON is nested too deeply", "Send flatter JSON.") from problem
    except UnicodeDecodeError as problem:
        raise bad_request("the body is not UTF-8", "Send JSON in UTF-8.") from problem


def _too_large(bytes_max: int) -> ApiError:
    return ApiError(
        413, f"the body is larger than {bytes_max} bytes", "Send smaller batches, or raise --body-bytes-max."
    )


def query_int(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and low <= int(text) <= high):
        raise bad_request(f"{name}={text[:40]!r} is not a number from {low} to {high}", f"Give {name} such a number.")
    return int(text)


def query_bool(request: Request, name: str, default: bool = False) -> bool:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise bad_request(f"{name} is true or false, not {text[:40]!r}", f"Give {name} one of them.")
    return text.lower() == "true"
