"""GET /metrics on a port of its own, and the same with less of single partitions: /metrics/logs, /metrics/totals. As
little HTTP as a scraper needs, with no library in the broker's process.
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from penstock.broker.metrics_page import Extent, metrics_page

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.metrics")

_REQUEST_BYTES_MAX = 8192
_REQUEST_SECONDS_MAX = 10
# A page is large: no more of them at once.
_SCRAPES_MAX = 4
_PATHS = {b"/metrics": Extent.ALL, b"/metrics/logs": Extent.LOGS, b"/metrics/totals": Extent.TOTALS}


class MetricsServer:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._scrapes = 0

    async def start(self, host: str, port: int) -> str | None:
        """The address. A port in use is no reason not to start the node: another one is taken, and the log says so."""
        try:
            self._server = await self._listen(host, port)
        except OSError as problem:
            try:
                self._server = await self._listen(host, 0)
            except OSError:
                log.error("no metrics: cannot listen on %s: %s", host, problem.strerror)
                return None
            log.warning("metrics are not on port %d, which is in use", port)
        bound = self._server.sockets[0].getsockname()
        return f"{bound[0]}:{bound[1]}"

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES_MAX)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS_MAX):
                request = await reader.readuntil(b"\r\n\r\n")
            await self._answer(request.partition(b"\r\n")[0], writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # A scraper that left, or something that is none.
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request_line: bytes, writer: asyncio.StreamWriter) -> None:
        words = request_line.split(b" ")
        path = words[1].partition(b"?")[0] if len(words) == 3 else b""
        if words[0] not in (b"GET", b"HEAD"):
            _say(writer, "405 Method Not Allowed", b"only GET\n")
        elif path not in _PATHS:
            _say(writer, "404 Not Found", b"see /metrics\n")
        elif self._scrapes >= _SCRAPES_MAX:
            _say(writer, "503 Service Unavailable", b"others are scraping\n")
        else:
            self._scrapes += 1
            try:
                await self._send_page(writer, _PATHS[path], is_head=words[0] == b"HEAD")
            finally:
                self._scrapes -= 1

    async def _send_page(self, writer: asyncio.StreamWriter, extent: Extent, *, is_head: bool) -> None:
        """Ends with the connection, so that its length need not be known beforehand."""
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\nconnection: close\r\n\r\n"
        )
        if is_head:
            return
        async for piece in metrics_page(self._broker, extent):
            writer.write(piece.encode())
            await writer.drain()


def _say(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + body)
