"""A cluster of production brokers, each on its own simulated disk, clock and event loop."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from penstock.base.settings import NodeSettings
from penstock.broker.broker import Broker, Identity
from penstock.broker.router import Router
from penstock.broker.server import Server
from penstock.testing.sim_disk import SimDisk
from tests.simulation.loop import ProcessLoop, Scheduler, SimExecutor, make_loop
from tests.simulation.network import Network

CLUSTER_ID = "simulated"
PORT = 9092
EPOCH_MS = 1_700_000_000_000


def directory_id_of(node_id: int) -> UUID:
    return UUID(int=(1 << 64) + node_id)


class SimClock:
    """Wall and monotonic time of one host: its rate is a little off, and the wall clock can be set."""

    def __init__(self, loop: ProcessLoop, host: "SimHost") -> None:
        self._scheduler = loop.scheduler
        self._rate = loop.clock_rate
        self._host = host

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._scheduler.now_s * self._rate * 1000) + self._host.wall_clock_ahead_ms

    def monotonic_ms(self) -> int:
        return int(self._scheduler.now_s * self._rate * 1000)


class SimRandom:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class SimHost:
    """A machine with a disk, on which a node runs or does not."""

    def __init__(self, cluster: "SimCluster", node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.name = f"node{node_id}"
        self.disk = SimDisk()
        self.wall_clock_ahead_ms = cluster.random.randrange(-500, 500)
        self.clock_rate = cluster.random.uniform(0.995, 1.005)
        self.boots = 0
        self.starts = 0
        self.loop: ProcessLoop | None = None
        self.broker: Broker | None = None
        self.server: Server | None = None
        self.start_problem: BaseException | None = None

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    @property
    def is_ready(self) -> bool:
        return self.broker is not None and self.loop is not None and self.broker.is_ready.is_set()

    def start(self) -> None:
        assert self.loop is None
        self.starts += 1
        self.start_problem = None
        self.cluster.network.dark_hosts.discard(self.name)
        loop = self.loop = make_loop(self.cluster.scheduler, f"{self.name}#{self.starts}", clock_rate=self.clock_rate)
        self.cluster.graveyard.append(loop)
        loop.call_soon(lambda: loop.create_task(self._run(loop)).add_done_callback(self._ended))

    async def _run(self, loop: ProcessLoop) -> None:
        cluster = self.cluster
        settings = NodeSettings(
            {**cluster.settings, "node.id": str(self.node_id), "listeners": f"PLAINTEXT://{self.name}:{PORT}"}
        )
        broker = self.broker = Broker(
            cluster.identity_of(self.node_id),
            data_directory="/",
            settings=settings,
            disk=self.disk,
            clock=SimClock(loop, self),
            random=SimRandom(cluster.random.getrandbits(64)),
            boot_id=f"boot-{self.boots}",
            sync_threads=SimExecutor(loop, cluster.sync_seconds_max),
        )
        cluster.on_broker(self, broker)
        server = self.server = Server(
            Router(broker).dispatch,
            frame_bytes_max=settings["socket.request.max.bytes"],
            idle_ms_max=settings["connections.max.idle.ms"],
            connections_max=1000,
            connections_per_ip_max=1000,
            listen=lambda host, port: cast(Any, cluster.network.listen(loop, host, port)),
            copy_bytes_max=1 << 30,
        )
        server.bind(self.name, PORT)
        broker.join_quorum(self.name, PORT)
        server.start()
        await broker.start(self.name, PORT)

    def _ended(self, task: Any) -> None:
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            # As in production: the process ends and says why.
            self.start_problem = problem
            self.cluster.note(f"{self.name} could not start: {problem!r}")
            self.kill()

    async def _stop(self) -> None:
        assert self.broker is not None
        assert self.server is not None
        await self.broker.take_leave()
        self.server.stop()
        self.broker.stop()
        self.kill()

    def stop_cleanly(self) -> None:
        loop = self.loop
        if loop is not None and self.is_ready:
            loop.call_soon(lambda: loop.create_task(self._stop()))

    def kill(self) -> None:
        """kill -9: what was written is in the page cache, and stays."""
        if self.loop is None:
            return
        self._end(silently=False)
        self.disk = self.disk.hand_over()

    def cut_power(self, chance: random.Random) -> None:
        """What was not synced may be lost, each file for itself."""
        if self.loop is not None:
            self._end(silently=True)
        self.boots += 1
        self.cluster.network.dark_hosts.add(self.name)
        self.disk = self.disk.hand_over()
        self.disk.crash(
            lambda _, unsynced: chance.choice((0, unsynced, chance.randint(0, unsynced))), torn=chance.random() < 0.3
        )

    def _end(self, *, silently: bool) -> None:
        assert self.loop is not None
        self.cluster.on_end(self)
        self.cluster.ends += 1
        loop, self.loop = self.loop, None
        loop.kill()
        self.cluster.graveyard += [self.broker, self.server]
        self.broker = self.server = None
        self.cluster.network.process_ended(loop, silently=silently)


class SimCluster:
    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        *,
        nodes: int,
        settings: Mapping[str, str],
        changes_voters: bool,
        note: Callable[[str], None],
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.random = scheduler.random
        self.settings = settings
        self.changes_voters = changes_voters
        self.sync_seconds_max = self.random.choice((0.001, 0.01, 0.05))
        # Some runs are busy; in others little is under way, and a record that is lost has no others behind it.
        self.pace = self.random.choice((1.0, 1.0, 3.0))
        self.note = note
        # Called before a node's process ends, while its broker can still be looked at.
        self.on_end: Callable[[SimHost], None] = lambda host: None
        # Called when a broker was made and has not begun.
        self.on_broker: Callable[[SimHost, Broker], None] = lambda host, broker: None
        self.ends = 0
        # What has ended is kept, so that it is not torn down in the middle of a run.
        self.graveyard: list[object] = []
        # Partitions of which a replica has rotted at some time: answers may hold what nobody must believe.
        self.rotten: set[tuple[str, int]] = set()
        self.node_ids = range(1, nodes + 1)
        self.hosts = {node_id: SimHost(self, node_id) for node_id in self.node_ids}

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()

    def identity_of(self, node_id: int) -> Identity:
        nodes = tuple((i, f"node{i}", PORT) for i in self.node_ids)
        identity = Identity(node_id, CLUSTER_ID, directory_id_of(node_id))
        if not self.changes_voters:
            return replace(identity, voters=nodes)
        # The first is a quorum of its own, which the others join.
        return identity if node_id == 1 else replace(identity, bootstrap=tuple(node[1:] for node in nodes))

    @property
    def is_ready(self) -> bool:
        return all(host.is_ready for host in self.hosts.values())

    def brokers(self) -> list[Broker]:
        return [host.broker for host in self.hosts.values() if host.broker is not None and host.is_ready]
