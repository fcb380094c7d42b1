"""A real broker inside the test process, on a port of its own: no Docker, no Java, nothing to clean up.

    with BrokerInProcess() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs in a thread with an event loop of its own; `http_url` starts the REST API and the schema registry beside it, on
first use. The data is in a temporary directory that goes with it, and is never synced.
"""

import asyncio
import gc
import logging
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

_START_SECONDS_MAX = 30
_STOP_SECONDS_MAX = 30
_HOST = "127.0.0.1"
# Tests make small topics and soon throw them away: what makes production safe or fast is in their way.
_SETTINGS = {
    "log.flush.mode": "none",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class BrokerInProcess:
    """`settings` are the broker's, by name, as with `penstock up -X`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = _SETTINGS | dict(settings or {})
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.Event | None = None
        self._serving: Future[None] | None = None
        self._http: Any = None
        self._http_serving: Future[None] | None = None
        self.bootstrap_servers = ""
        self._http_url = ""
        self.metrics_address = ""

    def start(self) -> "BrokerInProcess":
        with _quick_loading():
            self._start()
        return self

    def _start(self) -> None:
        from penstock.broker.node import NodeConfig, serve
        from penstock.testing.unsynced_disk import UnsyncedDisk

        self._directory = tempfile.TemporaryDirectory(prefix="penstock-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-broker", daemon=True)
        self._thread.start()
        is_ready = threading.Event()

        config = NodeConfig(1, self._directory.name, _HOST, 0, self._settings, metrics_port=0)

        def on_metrics(address: str) -> None:
            self.metrics_address = address

        def on_ready(address: str) -> None:
            self.bootstrap_servers = address
            is_ready.set()

        async def run() -> None:
            self._stopped = asyncio.Event()
            await serve(config, on_ready, self._stopped, on_metrics, UnsyncedDisk)

        self._serving = asyncio.run_coroutine_threadsafe(run(), self._loop)
        self._serving.add_done_callback(lambda _: is_ready.set())
        is_ready.wait(_START_SECONDS_MAX)
        if not self.bootstrap_servers:
            try:
                self._serving.result(0)
            finally:
                self._end()

    def stop(self) -> None:
        if self._http is not None:
            self._http.should_exit = True
            assert self._http_serving is not None
            self._http_serving.result(_STOP_SECONDS_MAX)
        if self._stopped is not None and self._loop is not None and self._serving is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._serving.result(_STOP_SECONDS_MAX)
        self._end()

    def _end(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_SECONDS_MAX)
            self._loop.close()
        if self._directory is not None:
            self._directory.cleanup()
        self._loop = self._thread = self._directory = None

    def __enter__(self) -> "BrokerInProcess":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # HTTP

    @property
    def http_url(self) -> str:
        """REST API, schema registry, metrics: all of HTTP is at this address."""
        if not self._http_url:
            with _quick_loading():
                self._start_http()
        return self._http_url

    @property
    def schema_registry_url(self) -> str:
        return self.http_url

    def _start_http(self) -> None:
        from penstock.http.options import HttpOptions
        from penstock.http.process import make_server

        assert self._loop is not None, "start the broker first"
        listener = socket.create_server((_HOST, 0))
        port: int = listener.getsockname()[1]
        is_ready = threading.Event()
        # Its greetings are for the log of a server, not of a test.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        options = HttpOptions(
            self.bootstrap_servers, _HOST, port, port, port, broker_metrics={"1": self.metrics_address}
        )
        self._http = make_server(options, is_ready.set)
        self._http_serving = asyncio.run_coroutine_threadsafe(self._http.serve([listener]), self._loop)
        self._http_serving.add_done_callback(lambda _: is_ready.set())
        is_ready.wait(_START_SECONDS_MAX)
        if self._http_serving.done():
            self._http_serving.result()
        self._http_url = f"http://{_HOST}:{port}"


@contextmanager
def _quick_loading() -> Iterator[None]:
    """Hundreds of modules are loaded at first use. None is garbage, which need not be looked for meanwhile; nor need
    pytest read each of them itself, to rewrite asserts that are not its user's."""
    hooks = [finder for finder in sys.meta_path if type(finder).__name__ == "AssertionRewritingHook"]
    was_enabled = gc.isenabled()
    gc.disable()
    for hook in hooks:
        sys.meta_path.remove(hook)
    try:
        yield
    finally:
        # Not as it was: what was loaded may have added finders of its own.
        sys.meta_path[:0] = hooks
        if was_enabled:
            gc.enable()
