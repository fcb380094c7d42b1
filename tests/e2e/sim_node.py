"""A node within the test's process, on a disk in memory that can lose power. Clients reach it over TCP as any other."""

import asyncio
import threading
from collections.abc import Coroutine
from uuid import UUID

from penstock.base.settings import NodeSettings
from penstock.broker.broker import Broker, Identity
from penstock.broker.ports import SystemClock, SystemRandom
from penstock.broker.router import Router
from penstock.broker.server import Server
from penstock.testing.sim_disk import SimDisk, Survival

HOST = "127.0.0.1"


class SimNode:
    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._broker: Broker | None = None
        self._server: Server | None = None

    def start(self) -> "SimNode":
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._start())
        return self

    async def _start(self) -> None:
        self._broker = Broker(
            Identity(1, "simulated", UUID(int=1 << 64)),
            data_directory="/",
            settings=NodeSettings({"node.id": "1"}),
            disk=self.disk,
            clock=SystemClock(),
            random=SystemRandom(),
        )
        self._server = Server(
            Router(self._broker).dispatch,
            frame_bytes_max=100 << 20,
            idle_ms_max=600_000,
            connections_max=1000,
            connections_per_ip_max=1000,
        )
        self.port = self._server.bind(HOST, 0)
        self._broker.join_quorum(HOST, self.port)
        self._server.start()
        await self._broker.start(HOST, self.port)

    def cut_power(self, survives: Survival | None = None, *, torn: bool = False) -> "SimNode":
        """The node is gone between two steps of its event loop, and so is what the disk had not been told to keep. A
        new node on what is left, not yet started."""
        self._call(self._vanish())
        self._end_loop()
        self.disk.crash(survives, torn=torn)
        return SimNode(self.disk)

    async def _vanish(self) -> None:
        assert self._server is not None
        assert self._broker is not None
        self._server.stop()
        # Syncs under way run to their end, in threads; nobody is told of them any more.
        self._broker.group_commit.stop()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def stop(self) -> None:
        self._call(self._stop())
        self._end_loop()

    async def _stop(self) -> None:
        assert self._server is not None
        assert self._broker is not None
        self._server.stop()
        self._broker.stop()

    def _call(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _end_loop(self) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
