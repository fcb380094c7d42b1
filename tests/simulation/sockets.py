"""The two ends of a simulated connection: as the socket that nodes read and write, and as asyncio's transport."""

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from socket import SO_LINGER
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.loop import ProcessLoop

if TYPE_CHECKING:
    from tests.simulation.network import Connection

Address = tuple[str, int]


class SimSocket:
    """What `penstock.broker.server` and `connection` use of a socket."""

    def __init__(
        self, loop: ProcessLoop, own: Address, peer: Address, connection: "Connection | None", side: int = 1
    ) -> None:
        self.loop = loop
        self._number = loop.number_socket(self)
        self._own = own
        self._peer = peer
        self._connection = connection
        self._side = side
        self._received = bytearray()
        self._has_ended = False
        self._is_reset = False
        self._is_closed = False
        # Whether closing takes back what is still on its way.
        self._discards = False
        self._reader: tuple[Callable[..., object], tuple[Any, ...]] | None = None
        self._is_told = False
        self.accept_queue: deque[SimSocket] = deque()
        self.on_close: Callable[[], None] = lambda: None
        # Instead of a reader, for a transport.
        self.on_data: Callable[[], None] | None = None

    # From the network

    def receive(self, data: bytes) -> None:
        self._received += data
        self.readable()

    def end(self) -> None:
        self._has_ended = True
        self.readable()

    def reset(self) -> None:
        self._is_reset = True
        self.readable()

    def readable(self) -> None:
        if self._is_told or self._is_closed or (self._reader is None and self.on_data is None):
            return
        self._is_told = True
        self.loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._is_told = False
        if self._is_closed or not (self._received or self._has_news()):
            return
        if self.on_data is not None:
            self.on_data()
        elif self._reader is not None:
            callback, args = self._reader
            callback(*args)
            # Readiness is a level, not an edge.
            if self._has_news():
                self.readable()

    def _has_news(self) -> bool:
        return bool(self._received or self.accept_queue or self._has_ended or self._is_reset)

    # From the loop

    def watch_reading(self, loop: ProcessLoop, callback: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
        self._reader = None if callback is None else (callback, args)
        if self._has_news():
            self.readable()

    def watch_writing(self, loop: ProcessLoop, callback: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
        """Everything is taken at once: nobody waits for room."""

    # As a socket

    def setblocking(self, flag: bool) -> None: ...
    def setsockopt(self, level: int, option: int, value: object) -> None:
        # Only nodes: Kafka's clients leave what they have given up to their kernels, so it may come at any time.
        self._discards |= option == SO_LINGER and self.loop.name.startswith("node")

    def getsockname(self) -> Address:
        return self._own

    def getpeername(self) -> Address:
        return self._peer

    def fileno(self) -> int:
        return self._number

    def accept(self) -> "tuple[SimSocket, Address]":
        if not self.accept_queue:
            raise BlockingIOError
        accepted = self.accept_queue.popleft()
        return accepted, accepted.getpeername()

    def recv_into(self, buffer: memoryview) -> int:
        received = self._received
        if received:
            count = len(received)
            if count <= len(buffer):
                buffer[:count] = received
                received.clear()
            else:
                count = len(buffer)
                buffer[:] = received[:count]
                del received[:count]
            return count
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        if self._has_ended:
            return 0
        raise BlockingIOError

    def take(self) -> bytes:
        data = bytes(self._received)
        self._received.clear()
        return data

    @property
    def is_over(self) -> bool:
        return self._is_reset or self._has_ended

    def send(self, data: Any) -> int:
        if self._is_reset or self._connection is None:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        self._connection.send(self._side, bytes(data))
        return len(data)

    def sendmsg(self, parts: list[Any], ancillary: tuple[()] = (), flags: int = 0) -> int:
        return self.send(b"".join(parts))

    def shutdown(self, how: int) -> None:
        self.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.on_close()
        if self._connection is None or self._is_reset:
            return
        if self._discards:
            self._connection.abort(self._side)
        else:
            self._connection.send(self._side, None)


class SimTransport(asyncio.Transport):
    """What asyncio's own protocols and `Peer` use of a transport."""

    def __init__(self, socket: SimSocket, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._socket = socket
        self._protocol = protocol
        self._is_closing = False
        socket.on_data = self._on_data
        if socket._has_news():
            socket.readable()

    def _on_data(self) -> None:
        data = self._socket.take()
        if data and not self._is_closing:
            self._protocol.data_received(data)
        if self._socket.is_over and not self._is_closing:
            self._is_closing = True
            self._socket.close()
            self._protocol.connection_lost(None)

    def write(self, data: Any) -> None:
        if not self._is_closing and not self._socket.is_over:
            self._socket.send(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._socket.close()
            self._socket.loop.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
