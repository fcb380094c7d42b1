"""Request frames: four bytes of size, a header, a body.

The header has two forms that count here. Version 1: API key, API version, correlation id, client id (a nullable
string). Version 2, for flexible requests: the same and a section of tagged fields.
"""

from struct import Struct

from penstock.base.ports import Bytes
from penstock.protocol.messages import Malformed, request_entity
from penstock.protocol.primitives import skip_tagged_fields

# API key, API version, correlation id, length of the client id.
HEADER = Struct(">hhih")
HEADER_BYTES = HEADER.size

PRODUCE = 0
FETCH = 1
# First flexible version of the APIs whose codecs are written by hand; kio knows the others.
_FLEXIBLE_FROM = {PRODUCE: 9, FETCH: 12}


def is_flexible(api_key: int, version: int) -> bool:
    flexible_from = _FLEXIBLE_FROM.get(api_key)
    if flexible_from is not None:
        return version >= flexible_from
    return bool(request_entity(api_key, version).__flexible__)  # type: ignore[attr-defined]


def body_position(frame: Bytes, client_id_bytes: int, flexible: bool) -> int:
    """Where the body begins. Raises Malformed."""
    position = HEADER_BYTES + max(client_id_bytes, 0)
    if not flexible:
        if position > len(frame):
            raise Malformed("the client id is longer than the frame")
        return position
    try:
        # No tags are one byte, 0, and that is what nearly all clients send.
        return position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    except IndexError as problem:
        raise Malformed("the request header is cut short") from problem


def read_client_id(frame: Bytes, client_id_bytes: int) -> str | None:
    """Raises Malformed."""
    if client_id_bytes < 0:
        return None
    try:
        return str(frame[HEADER_BYTES : HEADER_BYTES + client_id_bytes], "utf-8")
    except UnicodeDecodeError as problem:
        raise Malformed("the client id is not text") from problem
