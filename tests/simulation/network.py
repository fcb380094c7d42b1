"""A network of stream connections between simulated hosts: slow, partitioned either way, breaking.

As with TCP, the bytes of one direction arrive in order and whole, or the connection breaks. What is sent over a link
that is cut waits, as retransmissions would, until the cut heals or one side gives up. Connections do not wait for each
other: between two of them anything is reordered. A process that is killed has its connections reset by its kernel; a
host without power says nothing at all, until it is back and knows nothing of them.
"""

import asyncio
import errno
import zlib
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import cast

from tests.simulation.loop import ProcessLoop, Scheduler
from tests.simulation.sockets import Address, SimSocket, SimTransport

# When, by which connection, to which side of it.
_DELIVERY = Struct("<dIB")


class Link:
    """From one host to another, one way."""

    def __init__(self, sound_delay_s_max: float) -> None:
        self.is_cut = False
        self.cut_at_s = 0.0
        self._sound_delay_s_max = sound_delay_s_max
        self.mend()

    def mend(self) -> None:
        self.delay_s_max = self._sound_delay_s_max
        # Of each chunk: to be sent again after a while, and to have its connection broken.
        self.loss = 0.0
        self.reset = 0.0


class Network:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.random = scheduler.random
        scheduler.network = self
        self.listeners: dict[Address, SimSocket] = {}
        self.dark_hosts: set[str] = set()
        self.connections: dict[Connection, None] = {}
        self._links: dict[tuple[str, str], Link] = {}
        # Some networks are slow at the best of times: then more is on its way when something breaks.
        self._delay_s_max = self.random.choice((0.002, 0.01, 0.03))
        # Of everything that was delivered, when and where to.
        self.trace = 0
        self.connections_made = 0
        self.chunks_delivered = 0

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self._delay_s_max)
        return link

    def heal(self) -> None:
        """All links are as good as new, and what waited on them goes on its way."""
        for (source, target), link in list(self._links.items()):
            if link.is_cut:
                self.restore(source, target)
            link.mend()

    def cut(self, source: str, target: str) -> None:
        link = self.link(source, target)
        if not link.is_cut:
            link.is_cut, link.cut_at_s = True, self.scheduler.now_s

    def restore(self, source: str, target: str) -> None:
        link = self.link(source, target)
        if not link.is_cut:
            return
        link.is_cut = False
        for connection in list(self.connections):
            connection.resume(source, target, self.scheduler.now_s - link.cut_at_s)

    def note(self, connection: int, side: int, data: bytes) -> None:
        self.chunks_delivered += 1
        self.trace = zlib.crc32(_DELIVERY.pack(self.scheduler.now_s, connection, side) + data, self.trace)

    def listen(self, loop: ProcessLoop, host: str, port: int) -> "SimSocket":
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, "in use")
        listener = SimSocket(loop, (host, port), ("", 0), None)
        listener.on_close = lambda: self._unlisten((host, port), listener)
        self.listeners[host, port] = listener
        return listener

    def _unlisten(self, address: Address, listener: "SimSocket") -> None:
        if self.listeners.get(address) is listener:
            del self.listeners[address]

    async def connect(
        self, loop: ProcessLoop, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        connected: asyncio.Future[SimSocket] = loop.create_future()
        connection = Connection(self, loop, (host, port), connected)
        self.connections[connection] = None
        connection.open()
        try:
            socket = await connected
        except asyncio.CancelledError:
            connection.abort(0)
            raise
        protocol = protocol_factory()
        transport = SimTransport(socket, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def process_ended(self, loop: ProcessLoop, *, silently: bool) -> None:
        """The kernel closes what the process had open; a host without power cannot."""
        for address, listener in list(self.listeners.items()):
            if listener.loop is loop:
                del self.listeners[address]
        for connection in list(self.connections):
            for side in (0, 1):
                if connection.loops[side] is loop:
                    if silently:
                        connection.vanish(side)
                    else:
                        connection.abort(side)


class Connection:
    """Two sides: 0 asked for it, 1 was listening."""

    def __init__(
        self, network: Network, loop: ProcessLoop, target: Address, connected: "asyncio.Future[SimSocket]"
    ) -> None:
        self._network = network
        network.connections_made += 1
        self._number = network.connections_made
        self._target = target
        self._connected = connected
        source: Address = (loop.name.partition("#")[0], 0)
        self._addresses = (source, target)
        # What leads to each side.
        self._links = (network.link(target[0], source[0]), network.link(source[0], target[0]))
        self.loops: list[ProcessLoop | None] = [loop, None]
        self.sockets: list[SimSocket | None] = [None, None]
        # What is on the way to each side: bytes, or None for the end; and when the last of it arrives.
        self._queues: tuple[deque[bytes | None], deque[bytes | None]] = (deque(), deque())
        self._is_moving = [False, False]
        self._stalled_until_s = [0.0, 0.0]
        self._is_gone = [False, False]
        self.is_closed = False
        self._is_asking = True

    def _delay_s(self, side: int) -> float:
        link, chance = self._links[side], self._network.random
        delay_s = 0.0001 + link.delay_s_max * chance.random()
        while link.loss and chance.random() < link.loss:
            delay_s += chance.uniform(0.2, 0.6)
        return delay_s

    # Opening

    def open(self) -> None:
        self._is_asking = True
        self._network.scheduler.call_later(self._delay_s(1), self._arrive)

    def _arrive(self) -> None:
        if self.is_closed or not self._is_asking:
            return
        host = self._target[0]
        if self._links[1].is_cut or self._links[0].is_cut or host in self._network.dark_hosts:
            # Asked again every now and then, as the kernel does; whoever waits has a time-out.
            self._network.scheduler.call_later(1.0, self._arrive)
            return
        self._is_asking = False
        listener = self._network.listeners.get(self._target)
        if listener is None:
            self._finish()
            self._network.scheduler.call_later(self._delay_s(0), self._refused)
            return
        loop = listener.loop
        self.loops[1] = loop
        accepted = self.sockets[1] = SimSocket(loop, self._target, self._addresses[0], self, side=1)
        listener.accept_queue.append(accepted)
        listener.readable()
        self._network.scheduler.call_later(self._delay_s(0), self._established)

    def _refused(self) -> None:
        loop = self.loops[0]
        assert loop is not None
        if not loop.is_dead and not self._connected.done():
            self._connected.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))

    def _established(self) -> None:
        loop = self.loops[0]
        assert loop is not None
        if loop.is_dead or self._connected.done() or self.is_closed:
            if not self.is_closed and not loop.is_dead:
                self.abort(0)
            elif not self._connected.done() and not loop.is_dead:
                self._connected.set_exception(ConnectionResetError(errno.ECONNRESET, "reset"))
            return
        socket = self.sockets[0] = SimSocket(loop, self._addresses[0], self._target, self, side=0)
        self._connected.set_result(socket)

    # Bytes

    def send(self, from_side: int, data: bytes | None) -> None:
        """None is the end: there will be no more."""
        if self.is_closed:
            return
        side = 1 - from_side
        queue = self._queues[side]
        chance = self._network.random
        if data is not None and len(data) > 8 and chance.random() < 0.05:
            cut = chance.randrange(1, len(data))
            queue.append(data[:cut])
            queue.append(data[cut:])
        else:
            queue.append(data)
        self._move(side)

    def _move(self, side: int) -> None:
        if self._is_moving[side] or not self._queues[side] or self._links[side].is_cut:
            return
        self._is_moving[side] = True
        scheduler = self._network.scheduler
        stall_s = self._stalled_until_s[side] - scheduler.now_s
        delay_s = self._delay_s(side)
        scheduler.call_later(stall_s + delay_s if stall_s > 0.0 else delay_s, self._deliver, side)

    def _deliver(self, side: int) -> None:
        self._is_moving[side] = False
        if self.is_closed or self._links[side].is_cut or not self._queues[side]:
            return
        if self._is_gone[side]:
            if self._addresses[side][0] not in self._network.dark_hosts:
                # The host is back, and knows nothing of this connection.
                self.abort(side)
            else:
                self._network.scheduler.call_later(1.0, self._move, side)
            return
        link = self._links[side]
        if link.reset and self._network.random.random() < link.reset:
            self._break()
            return
        socket = self.sockets[side]
        if socket is None:
            self._network.scheduler.call_later(0.001, self._move, side)
            return
        # What is there goes together, as a stream's bytes do.
        queue = self._queues[side]
        chunk = queue.popleft()
        if chunk is None:
            socket.end()
        else:
            if queue and queue[0] is not None:
                parts = [chunk]
                while queue and queue[0] is not None:
                    parts.append(cast(bytes, queue.popleft()))
                chunk = b"".join(parts)
            self._network.note(self._number, side, chunk)
            socket.receive(chunk)
        self._move(side)

    def resume(self, source: str, target: str, cut_s: float) -> None:
        """The link is back. What waited is sent again when its turn comes: the pauses between tries have doubled while
        it was away."""
        for side in (0, 1):
            if (self._addresses[1 - side][0], self._addresses[side][0]) == (source, target) and self._queues[side]:
                self._stalled_until_s[side] = self._network.scheduler.now_s + self._network.random.random() * cut_s
                self._move(side)

    # Ends

    def _break(self) -> None:
        """Something in between has forgotten it, and tells both."""
        self._finish()
        for socket in self.sockets:
            if socket is not None:
                socket.reset()

    def abort(self, from_side: int) -> None:
        """One side is gone; the other hears of it, if the network lets it."""
        if self.is_closed:
            return
        self._is_gone[from_side] = True
        other = 1 - from_side
        if self._is_gone[other] or (self.sockets[other] is None and self._is_asking):
            self._finish()
            return
        self._queues[other].clear()
        self._network.scheduler.call_later(self._delay_s(other), self._reset, other)

    def _reset(self, side: int) -> None:
        if self.is_closed:
            return
        if self._links[side].is_cut:
            self._network.scheduler.call_later(0.5, self._reset, side)
            return
        socket = self.sockets[side]
        self._finish()
        if socket is not None and not self._is_gone[side]:
            socket.reset()
        elif side == 0 and not self._connected.done() and not cast(ProcessLoop, self.loops[0]).is_dead:
            self._connected.set_exception(ConnectionResetError(errno.ECONNRESET, "reset"))

    def vanish(self, side: int) -> None:
        """Without a word. The other side finds out when it sends something and the host is back."""
        self._is_gone[side] = True
        if self._is_gone[1 - side]:
            self._finish()

    def _finish(self) -> None:
        self.is_closed = True
        self._network.connections.pop(self, None)
