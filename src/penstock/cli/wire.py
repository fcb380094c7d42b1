"""Single requests over a plain socket, for what confluent-kafka's AdminClient cannot ask: sizes of partitions,
documentation of settings, and the cluster-wide default of a broker setting.
"""

import socket
from struct import Struct as Packer
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cli.connection import REQUEST_TIMEOUT_S, Cluster
from penstock.cli.failures import Failed
from penstock.protocol.messages import Malformed, Struct, decode, encode, request_entity, response_entity

_CLIENT_ID = b"penstock"
_HEADER = Packer(">ihhih")
_FRAME_BYTES_MAX = 100 * 1024 * 1024


def request(cluster: Cluster, address: tuple[str, int], api_key: int, version: int, body: Struct) -> Any:
    """One request on a connection of its own; the decoded answer."""
    if not cluster.is_plaintext:
        raise Failed("this needs a plaintext listener: it is asked over a plain connection")
    entity: Any = request_entity(api_key, version)
    frame = bytearray(_HEADER.size) + _CLIENT_ID + (b"\x00" if entity.__flexible__ else b"") + encode(entity, body)
    _HEADER.pack_into(frame, 0, len(frame) - 4, api_key, version, 0, len(_CLIENT_ID))
    try:
        with socket.create_connection(address, REQUEST_TIMEOUT_S) as connection:
            connection.sendall(frame)
            size = int.from_bytes(_receive(connection, 4), "big")
            if size > _FRAME_BYTES_MAX:
                raise Failed(f"{address[0]}:{address[1]} does not speak Kafka")
            answer = _receive(connection, size)
    except OSError as error:
        raise Failed(f"{address[0]}:{address[1]} did not answer: {error.strerror or error}") from error
    response: Any = response_entity(api_key, version)
    header_bytes = 5 if response.__header_schema__.__version__ == 1 else 4
    try:
        return decode(response, answer, header_bytes)
    except Malformed as error:
        raise Failed(f"{address[0]}:{address[1]} answered what cannot be read: {error}") from error


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise Failed("the broker closed the connection instead of answering: it may not serve this request")
        data += piece
    return bytes(data)


def refusal(code: ErrorCode, message: str | None) -> str | None:
    """Why a broker refused, as a sentence; None when it did not."""
    if code == ErrorCode.none:
        return None
    return message or code.name.replace("_", " ")
