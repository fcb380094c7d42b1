"""Both brokers as clusters of three nodes, each broker and controller in one process, on loopback with new directories.

Any node can be stopped, killed, paused and launched again. Both have what they ship with; nothing is tuned.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

from bench import brokers, processes, wire
from penstock.base.errors import Refused
from penstock.testing.ports import free_ports

NODE_IDS = (1, 2, 3)
REPLICAS = len(NODE_IDS)

_READY_SECONDS_MAX = 180.0
_LOOK_SECONDS = 0.02


class Cluster(Protocol):
    """`prepare` once, then nodes are launched and ended as often as wanted."""

    name: ClassVar[str]
    ports: dict[int, int]
    directory: Path

    def __init__(self, directory: Path) -> None: ...

    def prepare(self) -> None: ...

    def launch(self, node_id: int) -> None:
        """Starts its process; returns before it serves."""

    def stop(self, node_id: int) -> None:
        """Ends it cleanly."""

    def kill9(self, node_id: int) -> None: ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...

    def kill(self) -> None:
        """Ends all nodes at once; their data is of no more use."""

    def check_running(self) -> None:
        """Raises Failed, with what a node printed last, when a process has ended that should not have."""

    def pid(self, node_id: int) -> int: ...

    def pids(self) -> list[int]: ...

    @property
    def address(self) -> str:
        """For clients: all nodes."""


class _Nodes:
    """What the two have in common: processes by node id."""

    name: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = dict(zip(NODE_IDS, free_ports(len(NODE_IDS)), strict=True))
        self._processes: dict[int, processes.Process] = {}

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def _start(self, node_id: int, command: list[str]) -> None:
        self._processes[node_id] = processes.start(command, self._output(node_id))

    def stop(self, node_id: int) -> None:
        if not processes.end(self._processes.pop(node_id), brokers.STOP_TIMEOUT_S):
            raise processes.Failed(f"{self.name}: node {node_id} did not stop: {self._said(node_id)}")

    def kill9(self, node_id: int) -> None:
        processes.end(self._processes.pop(node_id), timeout_s=0)

    def pause(self, node_id: int) -> None:
        os.kill(self.pid(node_id), signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        os.kill(self.pid(node_id), signal.SIGCONT)

    def kill(self) -> None:
        for node_id in list(self._processes):
            self.kill9(node_id)

    def check_running(self) -> None:
        for node_id in self._processes:
            self.pid(node_id)

    def pid(self, node_id: int) -> int:
        process = self._processes[node_id]
        if process.poll() is not None:
            raise processes.Failed(f"{self.name}: node {node_id} has ended: {self._said(node_id)}")
        return process.pid

    def pids(self) -> list[int]:
        return [self.pid(node_id) for node_id in self._processes]

    def _output(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.out"

    def _said(self, node_id: int) -> str:
        return processes.last_lines(self._output(node_id))


class ApacheKafkaCluster(_Nodes):
    name: ClassVar[str] = brokers.ApacheKafka.name

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._controller_ports = dict(zip(NODE_IDS, free_ports(len(NODE_IDS)), strict=True))

    def prepare(self) -> None:
        self.directory.mkdir(parents=True)
        for node_id in NODE_IDS:
            settings = self._settings(node_id)
            text = "".join(f"{name}={value}\n" for name, value in settings.items())
            self._settings_file(node_id).write_text(text)
            command = ["kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"]
            command += ["--config", str(self._settings_file(node_id))]
            processes.run(brokers.java_command(*command), self.directory / "format.out", timeout_s=60)

    def _settings(self, node_id: int) -> dict[str, str]:
        listener = f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"
        controller = f"CONTROLLER://127.0.0.1:{self._controller_ports[node_id]}"
        voters = ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in self._controller_ports.items())
        return {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"{listener},{controller}",
            "advertised.listeners": f"{listener},{controller}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.directory / f"data-{node_id}"),
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
        }

    def launch(self, node_id: int) -> None:
        command = ("kafka.Kafka", str(self._settings_file(node_id)))
        self._start(node_id, brokers.java_command(*command, jvm=brokers.KAFKA_JVM))

    def _settings_file(self, node_id: int) -> Path:
        return self.directory / f"server-{node_id}.properties"


class PenstockCluster(_Nodes):
    """Each node by `penstock node`, as on hosts of their own."""

    name: ClassVar[str] = brokers.Penstock.name

    def prepare(self) -> None:
        self.directory.mkdir(parents=True)
        voters = ", ".join(f'"{voter}@127.0.0.1:{port}"' for voter, port in self.ports.items())
        for node_id, port in self.ports.items():
            self._file(node_id).write_text(
                f'node_id = {node_id}\nlisten = "127.0.0.1:{port}"\nvoters = [{voters}]\n'
                f'data = "{self.directory / f"data-{node_id}"}"\n'
            )

    def launch(self, node_id: int) -> None:
        program = Path(sys.executable).parent / "penstock"
        self._start(node_id, [str(program), "node", "--config", str(self._file(node_id))])

    def _file(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}.toml"


CLUSTERS: dict[type[brokers.Broker], type[Cluster]] = {
    brokers.ApacheKafka: ApacheKafkaCluster,
    brokers.Penstock: PenstockCluster,
}


def start(cluster: Cluster) -> None:
    """All nodes, until each of them is in the cluster."""
    cluster.prepare()
    for node_id in NODE_IDS:
        cluster.launch(node_id)

    def is_whole() -> bool:
        return all(len(wire.brokers_known_to(port)) == len(NODE_IDS) for port in cluster.ports.values())

    wait_until(cluster, is_whole, "all nodes know each other")


def remove(cluster: Cluster) -> None:
    cluster.kill()
    shutil.rmtree(cluster.directory, ignore_errors=True)


def wait_until(cluster: Cluster, condition: Callable[[], bool], what: str) -> None:
    """A node that does not answer yet makes the condition false. Raises Failed."""
    deadline_s = time.monotonic() + _READY_SECONDS_MAX
    while time.monotonic() < deadline_s:
        try:
            if condition():
                return
        except (OSError, Refused):
            cluster.check_running()
        time.sleep(_LOOK_SECONDS)
    raise processes.Failed(f"{cluster.name}: not within {_READY_SECONDS_MAX:.0f} s: {what}")


def make_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Three replicas, all in sync, of which two must have a record before it is acknowledged."""
    port = cluster.ports[NODE_IDS[0]]
    with wire.Connection(port) as connection:
        wire.create_topics(connection, [name], partitions, {"min.insync.replicas": "2"}, REPLICAS)
    await_in_sync(cluster, [name])


def await_in_sync(cluster: Cluster, topics: list[str]) -> None:
    """All replicas of all partitions, as all nodes see it."""

    def are_in_sync() -> bool:
        views = [wire.placements(port, topics) for port in cluster.ports.values()]
        return all(view and all(one.leader >= 0 and one.in_sync == REPLICAS for one in view) for view in views)

    wait_until(cluster, are_in_sync, f"all replicas of {', '.join(topics[:3])} are in sync")
