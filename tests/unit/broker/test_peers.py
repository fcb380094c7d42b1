"""The connection to another node."""

import asyncio
import socket

import pytest

from penstock.broker.peers import Peer, PeerGone
from penstock.protocol.messages import Struct

HOST = "127.0.0.1"
ENVELOPE = 58
# More than the kernel takes on its way to somebody who does not read.
REQUEST_BYTES = 32 << 20


async def test_a_request_that_is_given_up_does_not_arrive_later() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server((HOST, 0)) as listener:
        listener.setblocking(False)
        peer = Peer(HOST, listener.getsockname()[1], "node-1")
        body = Struct(request_data=bytes(REQUEST_BYTES), request_principal=None, client_host_address=b"")
        asking = loop.create_task(peer.request(ENVELOPE, 0, body))
        accepted, _ = await loop.sock_accept(listener)
        with accepted:
            await loop.sock_recv(accepted, 1)
            peer.close()
            with pytest.raises(PeerGone, match="was given up"):
                await asking
            with pytest.raises(ConnectionResetError):
                await _read_to_the_end(accepted)


async def _read_to_the_end(source: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(source, 1 << 20):
        pass
