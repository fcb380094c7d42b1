"""Single requests over a plain socket, for what confluent-kafka's AdminClient cannot ask: transactions. Blocks."""

import socket
from struct import Struct as Packer
from typing import Any

from penstock.http.errors import ApiError
from penstock.protocol.messages import Malformed, Struct, decode, encode, request_entity, response_entity

_CLIENT_ID = b"penstock-http"
_HEADER = Packer(">ihhih")
_FRAME_BYTES_MAX = 100 * 1024 * 1024
_SECONDS_MAX = 5.0
_API_VERSIONS = 18


def request(address: tuple[str, int], api_key: int, version: int, body: Struct) -> Any:
    """One request on a connection of its own; the decoded answer. Raises ApiError."""
    entity: Any = request_entity(api_key, version)
    frame = bytearray(_HEADER.size) + _CLIENT_ID + (b"\x00" if entity.__flexible__ else b"") + encode(entity, body)
    _HEADER.pack_into(frame, 0, len(frame) - 4, api_key, version, 0, len(_CLIENT_ID))
    try:
        with socket.create_connection(address, _SECONDS_MAX) as connection:
            connection.sendall(frame)
            size = int.from_bytes(_receive(connection, 4), "big")
            if size > _FRAME_BYTES_MAX:
                raise OSError("it does not speak Kafka")
            answer = _receive(connection, size)
        response: Any = response_entity(api_key, version)
        return decode(response, answer, 5 if response.__header_schema__.__version__ == 1 else 4)
    except (OSError, Malformed) as problem:
        raise ApiError(
            50301, f"{address[0]}:{address[1]} did not answer: {problem}", "Is it a plaintext listener? Try again."
        ) from problem


def serves(address: tuple[str, int], api_key: int) -> bool:
    """Raises ApiError."""
    answer = request(address, _API_VERSIONS, 0, Struct())
    return any(one.api_key == api_key for one in answer.api_keys)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise OSError("the connection was closed instead")
        data += piece
    return bytes(data)
