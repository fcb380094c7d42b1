"""Requests to the other nodes of the cluster.

A `Peer` is one connection, made on first use and again after it broke. Requests may overlap, answers come in their
order. Nothing is retried here: who asks knows best whether the question still stands.
"""

import asyncio
import socket
import struct
from collections import deque
from typing import Any

from penstock.protocol.messages import Malformed, decode_response, encode_request

_FRAME_BYTES_MAX = 1 << 30
_CONNECT_SECONDS_MAX = 2.0
# Switched on, and no time to linger.
_DISCARD = struct.pack("ii", 1, 0)


class PeerGone(Exception):
    """No answer will come: the connection was refused or broke."""


class Peer(asyncio.Protocol):
    def __init__(self, host: str, port: int, client_id: str) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id.encode()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unsent: list[bytearray] = []
        self._correlation_id = 0
        self._waiting: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._received = bytearray()

    async def request(self, api_key: int, version: int, body: object) -> Any:
        """The decoded answer. Raises PeerGone and Malformed."""
        answer = await self.exchange(api_key, version, body)
        return decode_response(api_key, version, answer)

    def exchange(self, api_key: int, version: int, body: object) -> "asyncio.Future[memoryview]":
        """The answer's frame, for who has a codec of his own."""
        self._correlation_id += 1
        return self._send(encode_request(api_key, version, self._correlation_id, self._client_id, body))

    def close(self) -> None:
        """Breaks off: whoever waits is told, and the next request connects anew."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._transport is not None:
            # What has not arrived must not arrive: else the kernel goes on trying for minutes, and a request that is
            # given up here is obeyed when a partition heals, long after what was asked later.
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
            self._transport.abort()
            self._transport = None
        self._fail(f"the connection to {self.host}:{self.port} was given up")

    def _send(self, frame: bytearray) -> "asyncio.Future[memoryview]":
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self._waiting.append((self._correlation_id, future))
        if self._transport is not None:
            self._transport.write(frame)
        else:
            self._unsent.append(frame)
            if self._connecting is None:
                self._connecting = self._loop.create_task(self._connect())
        return future

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                await self._loop.create_connection(lambda: self, self.host, self.port)
        except OSError as problem:
            self._connecting = None
            self._fail(f"{self.host}:{self.port} cannot be reached: {problem}")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connecting = None
        self._transport = transport
        self._received.clear()
        unsent, self._unsent = self._unsent, []
        transport.writelines(unsent)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            # It was given up already, and there may be a new one.
            return
        self._transport = None
        self._fail(f"{self.host}:{self.port} closed the connection")

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position = 0
        while len(received) - position >= 4:
            size = int.from_bytes(received[position : position + 4])
            if size > _FRAME_BYTES_MAX:
                self.close()
                return
            end = position + 4 + size
            if len(received) < end:
                break
            self._answered(bytes(received[position + 4 : end]))
            position = end
        del received[:position]

    def _answered(self, frame: bytes) -> None:
        correlation_id, future = self._waiting.popleft() if self._waiting else (-1, None)
        if int.from_bytes(frame[:4], signed=True) != correlation_id or future is None:
            if future is not None and not future.done():
                future.set_exception(Malformed(f"{self.host}:{self.port} answered what was not asked"))
            self.close()
        elif not future.done():
            future.set_result(memoryview(frame))

    def _fail(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._unsent.clear()
        for _, future in waiting:
            if not future.done():
                future.set_exception(PeerGone(why))
                # Whoever asked may have gone; then nobody needs to know.
                future.exception()
