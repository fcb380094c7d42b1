"""The connection over a socket pair: framing, order of answers, back-pressure, file slices."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack

import pytest

from penstock.base.ports import Slice
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred, answers_gathered
from penstock.broker.hearing import best_hearing
from penstock.broker.ports import RealDisk
from penstock.protocol.fetch import Part
from penstock.protocol.messages import Malformed

FRAME_BYTES_MAX = 4 * 1024 * 1024

Handle = Callable[[bytes], "Deferred | Iterable[Part] | None"]


class Client:
    def __init__(self, mine: socket.socket, connection: Connection) -> None:
        self.socket = mine
        self.connection = connection

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def send_frames(self, *bodies: bytes) -> None:
        await self.send(b"".join(pack(">i", len(body)) + body for body in bodies))

    async def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await asyncio.get_running_loop().sock_recv(self.socket, count - len(data))
            if not more:
                break
            data += more
        return data

    async def is_closed(self) -> bool:
        return await asyncio.get_running_loop().sock_recv(self.socket, 1) == b""


@asynccontextmanager
async def connected(handle: Handle) -> AsyncIterator[Client]:
    loop = asyncio.get_running_loop()
    hearing = best_hearing(loop)
    listener = socket.create_server(("127.0.0.1", 0))
    mine = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    listener.close()
    mine.setblocking(False)
    connection = Connection(
        theirs,
        loop,
        hearing,
        lambda _, frame: handle(bytes(frame)),
        FRAME_BYTES_MAX,
        lambda _: None,
    )
    try:
        yield Client(mine, connection)
    finally:
        connection.close()
        hearing.stop()
        mine.close()


def echo(frame: bytes) -> list[Part]:
    return [frame]


async def test_frames_come_whole_however_they_are_cut() -> None:
    async with connected(echo) as client:
        data = pack(">i", 5) + b"hello" + pack(">i", 0) + pack(">i", 3) + b"you"
        for byte in data:
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await client.receive(8) == b"helloyou"


async def test_large_frames_grow_the_buffer_and_quiet_shrinks_it() -> None:
    async with connected(echo) as client:
        large = bytes(range(256)) * 8192
        sender = asyncio.create_task(client.send_frames(large, b"small"))
        assert await client.receive(len(large) + 5) == large + b"small"
        await sender
        assert len(client.connection._buffer) > 1024 * 1024
        client.connection.shrink()
        assert len(client.connection._buffer) == 64 * 1024
        await client.send_frames(b"again")
        assert await client.receive(5) == b"again"


@pytest.mark.parametrize("size", [-1, FRAME_BYTES_MAX + 1, 2**31 - 1])
async def test_an_impossible_size_closes_the_connection_and_allocates_nothing(size: int) -> None:
    async with connected(echo) as client:
        tracemalloc.start()
        try:
            await client.send(pack(">i", size) + b"x")
            assert await client.is_closed()
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 64 * 1024


async def test_a_large_claim_with_few_bytes_holds_little_memory() -> None:
    async with connected(echo) as client:
        await client.send(pack(">i", FRAME_BYTES_MAX) + b"x" * 1000)
        await asyncio.sleep(0.05)
        assert len(client.connection._buffer) == 64 * 1024


async def test_what_waits_for_a_client_that_has_gone_holds_no_buffer_of_it() -> None:
    """A member that joins a group and goes away is waited for until the rebalance is over, which may take days."""
    deferred = Deferred()
    async with connected(lambda _: deferred) as client:
        await client.send_frames(b"join")
        async with asyncio.timeout(5):
            while deferred._connection is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            client.socket.close()
            while not client.connection.is_closed:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert deferred._connection is client.connection
        assert not client.connection._buffer
        deferred.complete([b"too late"])


async def test_answers_leave_in_the_order_of_their_requests() -> None:
    waiting: dict[bytes, Deferred] = {}

    def handle(frame: bytes) -> Deferred | list[Part]:
        if frame == b"now":
            return [b"N"]
        waiting[frame] = Deferred()
        return waiting[frame]

    async with connected(handle) as client:
        await client.send_frames(b"a", b"b", b"now")
        async with asyncio.timeout(5):
            while len(waiting) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        waiting[b"b"].complete([b"B"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.receive(1), 0.05)
        waiting[b"a"].complete([b"A"])
        assert await client.receive(3) == b"ABN"


async def test_gathered_answers_leave_together_and_in_order() -> None:
    waiting: list[Deferred] = []

    def handle(frame: bytes) -> Deferred:
        waiting.append(Deferred())
        return waiting[-1]

    async with connected(handle) as client, connected(handle) as other:
        await client.send_frames(b"a", b"b")
        async with asyncio.timeout(5):
            while len(waiting) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await other.send_frames(b"c")
            while len(waiting) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
        with answers_gathered():
            waiting[1].complete([b"B"])
            with answers_gathered():
                waiting[0].complete([b"A"])
            assert not client.connection.is_idle
            waiting[2].complete([b"C"])
            other.connection.close()
        assert client.connection.is_idle
        assert await client.receive(2) == b"AB"
        assert await other.is_closed()


async def test_what_was_answered_before_a_malformed_frame_still_arrives() -> None:
    def handle(frame: bytes) -> list[Part]:
        if frame == b"bad":
            raise Malformed("nonsense")
        return [frame]

    async with connected(handle) as client:
        await client.send_frames(b"good", b"bad", b"never")
        assert await client.receive(4) == b"good"
        assert await client.is_closed()


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    handled = 0
    answer = b"x" * 1_000_000

    def handle(frame: bytes) -> list[Part]:
        nonlocal handled
        handled += 1
        return [answer]

    async with connected(handle) as client:
        requests = 60
        await client.send_frames(*[b"?"] * requests)
        for _ in range(50):
            await asyncio.sleep(0.001)
        # Kernel buffers and the out-queue's limit, not the number of requests, say how far it went.
        assert handled < 30
        assert await client.receive(requests * len(answer)) == answer * requests
        assert handled == requests


async def test_too_many_unanswered_requests_stop_the_reading_until_some_are_answered() -> None:
    waiting: list[Deferred] = []

    def handle(frame: bytes) -> Deferred:
        waiting.append(Deferred())
        return waiting[-1]

    async with connected(handle) as client:
        await client.send_frames(*[b"?"] * 1000)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(waiting) < 300
        answered = 0
        while answered < 1000:
            while answered < len(waiting):
                waiting[answered].complete([b"!"])
                answered += 1
            await asyncio.sleep(0)
        assert await client.receive(1000) == b"!" * 1000


async def test_file_slices_are_sent_between_memory(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.open("segment")
    content = bytes(range(256)) * 4000
    file.append(content)
    small, large = Slice(file, 5, 100), Slice(file, 1000, 900_000)

    async with connected(lambda _: [b"<", small, b"|", large, b">"]) as client:
        await client.send_frames(b"?", b"?")
        expected = b"<" + content[5:105] + b"|" + content[1000:901_000] + b">"
        assert await client.receive(2 * len(expected)) == expected * 2
        if hasattr(socket, "TCP_CORK"):
            # Else what is sent next would wait for more.
            assert not client.connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
    disk.close()


async def test_a_slice_beyond_the_end_of_its_file_closes_the_connection(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.open("segment")
    file.append(b"x" * 100_000)

    async with connected(lambda _: [Slice(file, 50_000, 90_000)]) as client:
        await client.send_frames(b"?")
        await client.receive(50_000)
        assert await client.is_closed()
    disk.close()


async def test_what_a_client_sends_most_is_taken_from_the_buffer_and_the_rest_is_handed_out() -> None:
    """Here: frames of one byte."""
    handed_out: list[bytes] = []

    def handle(frame: bytes) -> list[Part]:
        handed_out.append(frame)
        client.connection.take_usual = take
        return [frame]

    def take(connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        while end - start >= 5 and buffer.startswith(pack(">i", 1), start):
            start += 5
            connection.skip_to(start)
            connection.accept([bytes(buffer[start - 1 : start]).upper()])
        return start

    async with connected(handle) as client:
        await client.send_frames(b"a", b"b", b"c", b"longer", b"d")
        await client.send(pack(">i", 1))
        assert await client.receive(10) == b"aBClongerD"
        await client.send(b"e")
        assert await client.receive(1) == b"E"
        assert handed_out == [b"a", b"longer"]


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="only Linux lets a connection choose")
async def test_nothing_is_paced_within_a_machine() -> None:
    async with connected(echo) as client:
        chosen = client.connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert chosen.rstrip(b"\0") == b"reno"


async def test_a_defect_in_a_handler_ends_only_this_connection() -> None:
    def handle(frame: bytes) -> list[Part]:
        raise RuntimeError("defect")

    async with connected(echo) as other, connected(handle) as client:
        await client.send_frames(b"?")
        assert await client.is_closed()
        await other.send_frames(b"alive")
        assert await other.receive(5) == b"alive"


async def test_a_handler_takes_the_frames_that_begin_like_its_own() -> None:
    """Up to the first that does not, or is not here in whole; and what it gives back is handled after it."""
    handled: list[list[bytes]] = []

    def handle(frame: bytes) -> list[Part]:
        taken = client.connection.take_alike(memoryview(frame), len(b"HEAD0000rest"))
        kept = [bytes(each) for _, each in taken if not bytes(each).endswith(b"odd")]
        assert [number for number, _ in taken] == [int.from_bytes(bytes(each)[4:8]) for _, each in taken]
        client.connection.give_back(taken[len(kept) :])
        handled.append([frame, *kept])
        return [b"." * (1 + len(kept))]

    alike = [b"HEAD%04drest%d" % (number, number) for number in range(70)]
    async with connected(handle) as client:
        whole = [*alike, b"HEAD0070else", b"HEAD0071rest", b"HEAD0072rest.odd", b"HEAD0073"]
        data = b"".join(pack(">i", len(body)) + body for body in whole)
        begun = pack(">i", 14) + b"HEAD0074rest"
        await client.send(data + begun)
        assert await client.receive(len(whole)) == b"." * len(whole)
        assert handled == [alike[:65], alike[65:], [whole[70]], [whole[71]], [whole[72]], [whole[73]]]
        handled.clear()
        await client.send(b"!!")
        assert await client.receive(1) == b"."
        assert handled == [[b"HEAD0074rest!!"]]


@pytest.mark.parametrize("size", [-1, 0, 11, 2**31 - 1])
async def test_an_impossible_size_after_frames_that_are_alike_closes_the_connection(size: int) -> None:
    def handle(frame: bytes) -> list[Part]:
        if not frame.startswith(b"HEAD"):
            raise Malformed("no frame of ours")
        return [b"." * (1 + len(client.connection.take_alike(memoryview(frame), 12)))]

    async with connected(handle) as client:
        frame = b"HEAD0000rest"
        await client.send((pack(">i", len(frame)) + frame) * 2 + pack(">i", size) + frame)
        assert await client.receive(2) == b".."
        if size != 11:
            assert await client.is_closed()
