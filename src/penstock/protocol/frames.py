"""Request frames: four bytes of size, a header, a body.

The header has two forms that count here. Version 1: API key, API version, correlation id, client id (a nullable
string). Version 2, for flexible requests: the same and a section of tagged fields.
"""

from struct import Struct, error
from typing import NamedTuple

from penstock.base.ports import Bytes
from penstock.protocol.messages import Malformed, request_entity
from penstock.protocol.primitives import skip_tagged_fields

SIZE = Struct(">i")
_HEADER = Struct(">hhih")
_HEADER_BYTES = _HEADER.size

PRODUCE = 0
FETCH = 1
# First flexible version of the APIs whose codecs are written by hand; kio knows the others.
_FLEXIBLE_FROM = {PRODUCE: 9, FETCH: 12}


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def peek_api(frame: Bytes) -> tuple[int, int, int]:
    """API key, version and correlation id: what can be read before knowing whether the version is served."""
    if len(frame) < 8:
        raise Malformed("the frame is too short for a request header")
    api_key, version, correlation_id, _ = _HEADER.unpack_from(bytes(frame[:8]) + b"\x00\x00")
    return api_key, version, correlation_id


def is_flexible(api_key: int, version: int) -> bool:
    flexible_from = _FLEXIBLE_FROM.get(api_key)
    if flexible_from is not None:
        return version >= flexible_from
    return bool(request_entity(api_key, version).__flexible__)  # type: ignore[attr-defined]


def read_request_header(frame: Bytes) -> RequestHeader:
    """The header of a frame whose API and version are served."""
    try:
        api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        position = _HEADER_BYTES
        if client_id_bytes < 0:
            client_id = None
        else:
            position += client_id_bytes
            if position > len(frame):
                raise Malformed("the client id is longer than the frame")
            client_id = str(frame[_HEADER_BYTES:position], "utf-8")
        if is_flexible(api_key, version):
            position = skip_tagged_fields(frame, position)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise Malformed(f"the request header is cut short or not text: {problem}") from problem
    return RequestHeader(api_key, version, correlation_id, client_id, position)
