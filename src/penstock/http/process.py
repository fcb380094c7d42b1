"""The HTTP process: sockets, signals and uvicorn around the app.

Sockets are taken first, so that a port in use is refused with a sentence before anything else is begun.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable
from typing import Any

from penstock.http.options import HttpOptions

log = logging.getLogger("penstock.http")

_BACKLOG = 1024
_GRACE_SECONDS = 3


class HttpRefused(Exception):
    """It cannot start; the message says why and what to do."""


def run(options: HttpOptions, on_ready: Callable[[], None]) -> None:
    """Serves until SIGINT or SIGTERM. Raises HttpRefused."""
    sockets = listen(options)
    asyncio.run(_serve(options, sockets, on_ready))


def listen(options: HttpOptions) -> list[socket.socket]:
    taken: list[socket.socket] = []
    for port in options.ports:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        taken.append(listener)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((options.host, port))
            listener.listen(_BACKLOG)
        except OSError as problem:
            for one in taken:
                one.close()
            raise HttpRefused(
                f"cannot listen on {options.host}:{port}: {problem.strerror}. "
                "Choose one port for everything with --http-port, or do without with --no-http."
            ) from problem
    return taken


async def _serve(options: HttpOptions, sockets: list[socket.socket], on_ready: Callable[[], None]) -> None:
    def on_serving() -> None:
        # A hundred thousand records a second come and go, and what stays is here already: look at that less often.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        on_ready()

    server = make_server(options, on_serving)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, server)
    await server.serve(sockets)


def make_server(options: HttpOptions, on_ready: Callable[[], None]) -> Any:
    """A uvicorn server that leaves signals to us and says when it serves."""
    import uvicorn

    from penstock.http.app import make_app
    from penstock.http.connection import Connection

    class Server(uvicorn.Server):
        def capture_signals(self) -> Any:
            return contextlib.nullcontext()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                on_ready()

    config = uvicorn.Config(
        make_app(options),
        http=Connection,
        # Who asks is of no interest, so what a proxy says of it is not either.
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=75,
    )
    return Server(config)


def _stop(server: Any) -> None:
    if server.should_exit:
        server.force_exit = True
    server.should_exit = True
