"""Whether a broker whose connection broke is dead: what the controller finds at its address."""

import asyncio
import socket

from penstock.broker.controller_runner import is_gone
from penstock.testing.ports import free_port

HOST = "127.0.0.1"


async def test_where_nothing_listens_it_is_gone() -> None:
    assert await is_gone(HOST, free_port())


async def test_who_takes_connections_and_keeps_them_is_there() -> None:
    with socket.create_server((HOST, 0)) as listener:
        assert not await is_gone(HOST, listener.getsockname()[1])


async def test_one_that_is_dying_takes_a_connection_and_breaks_it() -> None:
    listener = socket.create_server((HOST, 0))
    probing = asyncio.create_task(is_gone(HOST, listener.getsockname()[1]))
    await asyncio.sleep(0.05)
    assert not probing.done()
    listener.close()
    assert await probing


async def test_who_turns_everybody_away_is_there() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), HOST, 0)
    async with server:
        assert not await is_gone(HOST, server.sockets[0].getsockname()[1])
