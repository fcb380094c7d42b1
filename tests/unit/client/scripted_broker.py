"""Brokers that answer what a test tells them to, over real sockets on loopback."""

import socket
import threading
from collections.abc import Callable
from struct import Struct as Packer
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.protocol.frames import HEADER, body_position, is_flexible
from penstock.protocol.messages import Struct, decode_request, encode_response

API_VERSIONS = 18
_LENGTH = Packer(">i")

Handler = Callable[["ScriptedBroker", int, Any], Struct | None]
"""Broker, version and request to the answer; None closes the connection instead."""


class ScriptedBroker:
    """Listens on a port of its own. `handlers` by API key; versions as `served`, 0-12 for those not in it."""

    def __init__(self, handlers: dict[int, Handler], served: dict[int, tuple[int, int]] | None = None) -> None:
        self.handlers = handlers
        self.served = served or {}
        self.asked: list[tuple[int, Any]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        # Closing alone does not wake a thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(5)

    def drop_connections(self) -> None:
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._connections.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while prefix := stream.read(4):
                    answer = self._answer(stream.read(_LENGTH.unpack(prefix)[0]))
                    if answer is None:
                        return
                    connection.sendall(answer)
            except OSError:
                return

    def _answer(self, frame: bytes) -> bytearray | None:
        api_key, version, correlation_id, client_id_bytes = HEADER.unpack_from(frame)
        if api_key == API_VERSIONS:
            keys = {**dict.fromkeys(self.handlers, (0, 12)), API_VERSIONS: (0, 3), **self.served}
            listed = [Struct(api_key=key, min_version=low, max_version=high) for key, (low, high) in keys.items()]
            return encode_response(api_key, version, correlation_id, Struct(api_keys=listed))
        position = body_position(frame, client_id_bytes, is_flexible(api_key, version))
        request = decode_request(api_key, version, frame, position)
        self.asked.append((api_key, request))
        answer = self.handlers[api_key](self, version, request)
        return None if answer is None else encode_response(api_key, version, correlation_id, answer)


def metadata(nodes: dict[int, int], topic: str, leader: Callable[[], int]) -> Handler:
    """Of one topic with one partition. `nodes` are ports by node id."""

    def answer(_: ScriptedBroker, version: int, request: Any) -> Struct:
        partition = Struct(partition_index=0, leader_id=leader(), leader_epoch=0, error_code=ErrorCode.none)
        found = Struct(name=topic, error_code=ErrorCode.none, partitions=[partition])
        brokers = [Struct(node_id=node, host="127.0.0.1", port=port) for node, port in nodes.items()]
        return Struct(brokers=brokers, cluster_id="scripted", controller_id=1, topics=[found])

    return answer


def fetched(records: bytes, error: ErrorCode = ErrorCode.none, aborted: list[tuple[int, int]] | None = None) -> Struct:
    transactions = None if aborted is None else [Struct(producer_id=each[0], first_offset=each[1]) for each in aborted]
    partition = Struct(
        partition_index=0, error_code=error, high_watermark=9, last_stable_offset=9, log_start_offset=0,
        aborted_transactions=transactions, preferred_read_replica=-1, records=records,
    )  # fmt: skip
    return Struct(error_code=ErrorCode.none, responses=[Struct(topic="t", partitions=[partition])])
