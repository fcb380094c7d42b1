"""The kio seam: every message but Produce and Fetch, in every version, by one pair of functions.

kio has a frozen dataclass for each version of each message, which we read by a reader of our own: kio's native one
reserves memory by lengths that it has not checked against the bytes. Writing takes a `Struct`, which is the same
for all versions: the version's own schema picks the fields that it has, absent ones get the schema's default or Kafka's
implicit one (0, "", empty), the others are left out. So a handler builds one answer and never asks which version it
speaks, except where Kafka's behaviour itself differs.

Times stay milliseconds on the writing side: give an int where kio's schema says timedelta or datetime.
"""

from functools import cache
from struct import Struct as Packer
from typing import Any

from kio.index import load_request_schema, load_response_schema

from penstock.base.ports import Bytes
from penstock.protocol.primitives import Malformed
from penstock.protocol.schema import Struct
from penstock.protocol.schema_reader import Read, reader
from penstock.protocol.schema_writer import Write, write_uvarint, writer

__all__ = [
    "Malformed",
    "Struct",
    "decode",
    "decode_request",
    "decode_response",
    "encode",
    "encode_request",
    "encode_response",
    "request_entity",
    "response_entity",
    "write_uvarint",
]

_FRAME = Packer(">ii")
_REQUEST_HEADER = Packer(">ihhih")


def decode(entity: type, data: Bytes, position: int = 0) -> Any:
    """The message at `position`, which must fill the rest of `data` exactly. Raises Malformed."""
    message, end = reader(entity, make=entity)(bytes(data), position)
    if end != len(data):
        raise Malformed(f"{entity.__name__}: {len(data) - end} bytes are left over")
    return message


def encode(entity: type, message: object) -> bytearray:
    out = bytearray()
    writer(entity)(out, message)
    return out


@cache
def request_entity(api_key: int, version: int) -> type:
    return load_request_schema(api_key, version)


@cache
def response_entity(api_key: int, version: int) -> type:
    return load_response_schema(api_key, version)


@cache
def _request_codec(api_key: int, version: int) -> tuple[Read, Write, bytes]:
    """How it is read and written, and what its header ends with."""
    entity: Any = request_entity(api_key, version)
    return reader(entity, make=Struct), writer(entity), b"\0" if entity.__flexible__ else b""


@cache
def _response_codec(api_key: int, version: int) -> tuple[Read, Write, bytes]:
    entity: Any = response_entity(api_key, version)
    return reader(entity, make=Struct), writer(entity), b"\0" if entity.__header_schema__.__version__ == 1 else b""


def decode_request(api_key: int, version: int, data: Bytes, position: int = 0) -> Any:
    """A request's body, after its header, in Structs: making kio's frozen classes takes longer than all the rest. Bytes
    behind it are ignored, as Kafka does: librdkafka sends some."""
    read, _, _ = _request_codec(api_key, version)
    message, _ = read(bytes(data), position)
    return message


def encode_response(api_key: int, version: int, correlation_id: int, body: object) -> bytearray:
    """A whole frame: size, header and body."""
    _, write, tags = _response_codec(api_key, version)
    out = bytearray(8) + tags
    write(out, body)
    _FRAME.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def encode_request(api_key: int, version: int, correlation_id: int, client_id: bytes, body: object) -> bytearray:
    """A whole frame, as a client sends it."""
    _, write, tags = _request_codec(api_key, version)
    out = bytearray(_REQUEST_HEADER.size) + client_id + tags
    write(out, body)
    _REQUEST_HEADER.pack_into(out, 0, len(out) - 4, api_key, version, correlation_id, len(client_id))
    return out


def decode_response(api_key: int, version: int, data: Bytes) -> Any:
    """The body, in Structs, of a frame without its size; the correlation id, which opens it, is for the caller to look
    at. Raises Malformed."""
    read, _, tags = _response_codec(api_key, version)
    message, end = read(bytes(data), 4 + len(tags))
    if end != len(data):
        raise Malformed(f"{response_entity(api_key, version).__name__}: {len(data) - end} bytes are left over")
    return message
