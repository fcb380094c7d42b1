"""Registries over HTTP, each with a server of its own, on a node that all of them share."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from penstock.http.registry import Registry, root_route, routes
from penstock.testing.ports import free_port
from tests.e2e.node import Node, wait_until


class Server:
    """A registry in a thread with an event loop of its own, as it would run in a process of its own."""

    def __init__(self, bootstrap: str, topic: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._bootstrap = bootstrap
        self.topic = topic
        self._server: uvicorn.Server | None = None
        self._registry: Registry | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> "Server":
        self._thread.start()
        wait_until(
            lambda: self._problem is not None or (self._server is not None and self._server.started), "it serves"
        )
        if self._problem is not None:
            raise self._problem
        return self

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as problem:
            self._problem = problem

    async def _serve(self) -> None:
        self._registry = Registry(self._bootstrap, self.url, topic=self.topic, group=f"group of {self.topic}")
        await self._registry.start()
        app = Starlette(routes=[root_route(self._registry), *routes(self._registry)])
        self._server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=self.port, log_level="warning"))
        try:
            await self._server.serve()
        finally:
            await self._registry.stop()

    @property
    def is_leader(self) -> bool:
        return self._registry is not None and self._registry.is_leader

    def wait_for_leadership(self) -> "Server":
        wait_until(lambda: self.is_leader, "it leads")
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30)


MakeServer = Callable[..., Server]


@pytest.fixture(scope="session")
def registry_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("registry") / "data", "-X", "group.initial.rebalance.delay.ms=0").start()
    yield node
    node.close()


@pytest.fixture
def make_server(registry_node: Node, topic_name: str) -> Iterator[MakeServer]:
    """Registries on a schemas topic of the test's own."""
    made: list[Server] = []

    def make(port: int | None = None) -> Server:
        made.append(Server(registry_node.bootstrap, f"_schemas-{topic_name}", port).start())
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def shared_server(registry_node: Node) -> Iterator[Server]:
    """One registry for all tests that use subjects of their own and leave the top-level settings alone."""
    server = Server(registry_node.bootstrap, "_schemas").start()
    yield server
    server.stop()


@pytest.fixture
def http(shared_server: Server) -> Iterator[httpx.Client]:
    with shared_server.client() as client:
        yield client


if __name__ == "__main__":
    # A registry in a process of its own, for tests that kill it: bootstrap servers, topic, port.
    Server(sys.argv[1], sys.argv[2], int(sys.argv[3])).run()
