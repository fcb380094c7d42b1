"""The listening socket over real connections."""

import asyncio
import socket

from penstock.broker.server import Server

CLIENTS = 100


async def test_clients_that_all_end_at_once_are_all_forgotten_and_others_served_meanwhile() -> None:
    server = Server(
        lambda _, frame: [bytes(frame)],
        frame_bytes_max=1000,
        idle_ms_max=60_000,
        connections_max=1000,
        connections_per_ip_max=CLIENTS + 1,
    )
    port = server.bind("127.0.0.1", 0)
    server.start()
    loop = asyncio.get_running_loop()

    async def connect() -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        return client

    async def is_served(client: socket.socket) -> bool:
        await loop.sock_sendall(client, b"\0\0\0\1x")
        return await loop.sock_recv(client, 1) == b"x"

    try:
        async with asyncio.timeout(20):
            clients = [await connect() for _ in range(CLIENTS)]
            for client in clients:
                assert await is_served(client)
            other = await connect()
            for client in clients:
                client.close()
            assert await is_served(other)
            # As many may come again as went: none of them is still counted.
            again: list[socket.socket] = []
            while len(again) < CLIENTS:
                client = await connect()
                try:
                    assert await is_served(client)
                except (ConnectionError, AssertionError):
                    client.close()
                else:
                    again.append(client)
            for client in (*again, other):
                client.close()
    finally:
        server.stop()
