"""What stands before every node in place of a network: it can stop carrying bytes, in either direction, for any pair.

    python proxy.py '{"1": [PORT, TARGET-PORT], ...}'

Nodes are known to each other and to clients by the proxy's ports only. Who connects is told from the client id of the
first request: nodes name themselves, everybody else is a client. A link that is cut keeps its connections and takes new
ones, but carries nothing: neither bytes nor the end of the connection. What was held back arrives when it is mended, as
with TCP; so requests come late, after their senders gave up on them, which is what partitions are dreaded for.

Commands come as lines of JSON on the standard input, each answered by a line when it is done:
{"cut": [[FROM, TO], ...]} replaces what is cut (FROM and TO are node ids, or 0 for clients; bytes from FROM to TO are
held, whoever opened the connection), {"down": NODE} and {"up": NODE} refuse and take connections.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HOST = "127.0.0.1"
CLIENTS = 0
_READ_BYTES = 1 << 16
_CLIENT_ID_AT = 14
_HEADER_BYTES_MAX = 300
_NODE_NAME = re.compile(rb"(?:node|replica)-(\d+)")

Link = tuple[int, int]


def source_of(start: bytes) -> int | None:
    """Whose connection begins with these bytes of a request; None while there are too few of them to tell."""
    if len(start) < _CLIENT_ID_AT:
        return None
    length = int.from_bytes(start[_CLIENT_ID_AT - 2 : _CLIENT_ID_AT], signed=True)
    if length < 0 or length > _HEADER_BYTES_MAX:
        return CLIENTS
    name = start[_CLIENT_ID_AT : _CLIENT_ID_AT + length]
    if len(name) < length:
        return None
    found = _NODE_NAME.fullmatch(name)
    return int(found[1]) if found else CLIENTS


class Links:
    """Which of them carry."""

    def __init__(self) -> None:
        self._cut: set[Link] = set()
        self._changed = asyncio.Event()

    def cut(self, links: Iterable[Link]) -> None:
        self._cut = set(links)
        self._changed.set()
        self._changed = asyncio.Event()

    async def carries(self, link: Link) -> None:
        """Returns when it does."""
        while link in self._cut:
            await self._changed.wait()


class Gate:
    """One node's port."""

    def __init__(self, node_id: int, port: int, target_port: int, links: Links) -> None:
        self._node_id, self._port, self._target_port = node_id, port, target_port
        self._links = links
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, HOST, self._port, backlog=1000)

    async def close(self) -> None:
        """Connections end by themselves, with the node."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = bytearray()
        try:
            while (source := source_of(bytes(start))) is None:
                more = await reader.read(_READ_BYTES)
                if not more:
                    writer.close()
                    return
                start += more
            await self._links.carries((source, self._node_id))
            onward_reader, onward_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            writer.transport.abort()
            return
        onward_writer.write(start)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._carry(reader, onward_writer, (source, self._node_id)))
            tasks.create_task(self._carry(onward_reader, writer, (self._node_id, source)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
        """Until the end of the connection. Bytes that were read when the link was cut stay here."""
        try:
            while data := await reader.read(_READ_BYTES):
                await self._links.carries(link)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        await self._links.carries(link)
        writer.close()


async def serve(ports: dict[int, tuple[int, int]]) -> None:
    """Until the standard input ends."""
    links = Links()
    gates = {node_id: Gate(node_id, port, target, links) for node_id, (port, target) in ports.items()}
    for gate in gates.values():
        await gate.open()
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer)
    print("ready", flush=True)
    while line := await commands.readline():
        for name, argument in json.loads(line).items():
            match name:
                case "cut":
                    links.cut((source, target) for source, target in argument)
                case "down":
                    await gates[argument].close()
                case "up":
                    await gates[argument].open()
        print("done", flush=True)


class Proxy:
    """The process, as the one who drives it sees it."""

    def __init__(self, ports: dict[int, tuple[int, int]]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__)), json.dumps(ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._await("ready")

    def cut(self, links: Iterable[Link]) -> None:
        self._tell(cut=sorted(links))

    def mend(self) -> None:
        self.cut(())

    def take_down(self, node_id: int) -> None:
        self._tell(down=node_id)

    def bring_up(self, node_id: int) -> None:
        self._tell(up=node_id)

    def close(self) -> None:
        self._process.communicate()

    def _tell(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        self._await("done")

    def _await(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"{word}\n", f"the proxy said {line!r}"


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(serve({int(node_id): tuple(pair) for node_id, pair in given.items()}))
