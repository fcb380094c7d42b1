"""A cluster of ours: one process for each node, any of which can be killed, paused, stopped and started again."""

import signal
import subprocess
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.cli.children import NodeChild, NodeOptions
from penstock.protocol.messages import Struct
from penstock.testing.ports import free_ports
from tests.conformance.wire import FIND_COORDINATOR, METADATA, Closed, Wire
from tests.e2e.node import DEFECTS, START_SECONDS_MAX, STOP_SECONDS_MAX, wait_until

HOST = "127.0.0.1"
NODE_IDS = (1, 2, 3)
DESCRIBE_QUORUM = 55
_GROUP, _TRANSACTION = 0, 1


class NotStarted(Exception):
    """What a node said that refused to start."""


class Cluster:
    """`close` at the end says whether all was well."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.ports = dict(zip(NODE_IDS, free_ports(len(NODE_IDS)), strict=True))
        self.voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in self.ports.items())
        # Coordinators have a few partitions, on all nodes: to load fifty takes its time on a busy machine.
        self.settings = {
            "controller.quorum.voters": self.voters,
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self.running: dict[int, NodeChild] = {}
        self.paused: set[int] = set()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    # Processes

    def start(self) -> "Cluster":
        for node_id in NODE_IDS:
            self.spawn(node_id)
        for node_id in NODE_IDS:
            self.await_ready(node_id)
        return self

    def spawn(self, node_id: int) -> None:
        """Does not wait until it is ready."""
        assert node_id not in self.running
        self.running[node_id] = self.child(node_id)

    def child(
        self, node_id: int, *, port: int = 0, directory: Path | None = None, settings: dict[str, str] | None = None
    ) -> NodeChild:
        """A process that is not one of the cluster's own, unless nothing but `node_id` is given."""
        home = directory or self.data
        home.mkdir(exist_ok=True)
        options = NodeOptions(
            node_id, str(home / f"node-{node_id}"), HOST, port or self.ports[node_id], settings or self.settings
        )
        return NodeChild(options, home)

    def await_ready(self, node_id: int) -> None:
        await_ready(self.running[node_id])

    def start_node(self, node_id: int) -> None:
        self.spawn(node_id)
        self.await_ready(node_id)

    def kill9(self, node_id: int) -> None:
        child = self.running.pop(node_id)
        self.paused.discard(node_id)
        child.stop(signal.SIGKILL)
        child.process.wait(STOP_SECONDS_MAX)
        child.forget()

    def stop_node(self, node_id: int) -> None:
        """Ends it cleanly, and checks that it was."""
        self.ask_to_stop(node_id)
        self.await_end(node_id)

    def ask_to_stop(self, node_id: int) -> None:
        self.running[node_id].stop(signal.SIGTERM)

    def await_end(self, node_id: int) -> None:
        child = self.running.pop(node_id)
        try:
            code = child.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            child.process.kill()
            code = child.process.wait()
        child.forget()
        assert code == 0, f"node {node_id} ended with {code}:\n{self.log(node_id)}"

    def pause(self, node_id: int) -> None:
        self.paused.add(node_id)
        self.running[node_id].stop(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.paused.discard(node_id)
        self.running[node_id].stop(signal.SIGCONT)

    def stop(self) -> None:
        """All at once."""
        for node_id in tuple(self.paused):
            self.resume(node_id)
        for node_id in self.running:
            self.ask_to_stop(node_id)
        for node_id in tuple(self.running):
            self.await_end(node_id)

    def close(self) -> None:
        self.stop()
        for node_id in NODE_IDS:
            for defect in DEFECTS:
                assert defect not in self.log(node_id), self.log(node_id)

    def log(self, node_id: int) -> str:
        path = self.data / f"node-{node_id}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # What the cluster says of itself

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(
        self, name: str, partitions: int = 3, *, replicas: list[list[int]] | None = None, **configs: str
    ) -> None:
        """Waits until all nodes know it, and all replicas are in sync."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        if replicas is None:
            topic = NewTopic(name, partitions, 3, config=settings)
        else:
            topic = NewTopic(name, len(replicas), replica_assignment=replicas, config=settings)
        self.admin.create_topics([topic])[name].result(30)
        self.await_in_sync(name)

    def partitions(self, topic: str, node_id: int | None = None) -> dict[int, Any]:
        """As one node sees them: any that answers, if none is named."""
        for candidate in [node_id] if node_id is not None else self.answering():
            try:
                with Wire(self.ports[candidate], timeout_s=5) as wire:
                    (found,) = wire.ask(METADATA, 12, _metadata_of(topic)).topics
            except (OSError, Closed):
                continue
            return {one.partition_index: one for one in found.partitions}
        return {}

    def known_topics(self, node_id: int) -> list[str]:
        with Wire(self.ports[node_id]) as wire:
            return [topic.name for topic in wire.ask(METADATA, 12, _metadata_of(None)).topics]

    def answering(self) -> list[int]:
        return [node_id for node_id in self.running if node_id not in self.paused]

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Among the nodes that run: the metadata may still name one that was."""
        wait_until(lambda: self._leader_of(topic, partition) in self.answering(), f"{topic}-{partition} has a leader")
        return self._leader_of(topic, partition)

    def _leader_of(self, topic: str, partition: int) -> int:
        found = self.partitions(topic).get(partition)
        return -1 if found is None else int(found.leader_id)

    def await_in_sync(self, topic: str) -> None:
        """All replicas, as all nodes see it."""

        def are_in_sync() -> bool:
            views = [self.partitions(topic, node_id) for node_id in self.answering()]
            return all(
                view and all(len(one.isr_nodes) == len(one.replica_nodes) for one in view.values()) for view in views
            )

        wait_until(are_in_sync, f"all replicas of {topic} are in sync")

    def controller(self) -> int:
        """The node that leads the metadata quorum."""
        leaders: list[int] = []

        def is_known() -> bool:
            leaders[:] = [leader for leader in map(self._controller_by, self.answering()) if leader > 0]
            return bool(leaders)

        wait_until(is_known, "there is a controller")
        return leaders[0]

    def _controller_by(self, node_id: int) -> int:
        topics = [Struct(topic_name="__cluster_metadata", partitions=[Struct(partition_index=0)])]
        try:
            with Wire(self.ports[node_id], timeout_s=5) as wire:
                answer = wire.ask(DESCRIBE_QUORUM, 2, Struct(topics=topics))
        except (OSError, Closed):
            return -1
        if answer.error_code:
            return -1
        (partition,) = answer.topics[0].partitions
        return -1 if partition.error_code else int(partition.leader_id)

    def group_coordinator(self, group: str) -> int:
        return self._coordinator(group, _GROUP)

    def transaction_coordinator(self, transactional_id: str) -> int:
        return self._coordinator(transactional_id, _TRANSACTION)

    def _coordinator(self, key: str, kind: int) -> int:
        found: list[int] = []

        def is_known() -> bool:
            with Wire(self.ports[self.answering()[0]]) as wire:
                (one,) = wire.ask(FIND_COORDINATOR, 4, Struct(key_type=kind, coordinator_keys=[key])).coordinators
            found[:] = [int(one.node_id)] if not one.error_code else []
            return bool(found)

        wait_until(is_known, f"{key} has a coordinator")
        return found[0]

    # What is on the disks

    def stored(self, node_id: int, partition: str) -> bytes:
        """All bytes of a partition's log."""
        directory = self.data / f"node-{node_id}" / partition
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def partition_names(self) -> set[str]:
        """Without what is no replica any more: deleted, or put aside because a power cut came before its first sync."""
        names = {path.name for path in self._partition_directories()}
        return {name for name in names if not name.endswith(("-delete", ".unknown-stray"))}

    def _partition_directories(self) -> Iterator[Path]:
        for node_id in NODE_IDS:
            for path in (self.data / f"node-{node_id}").glob("*-[0-9]*"):
                if path.is_dir() and not path.name.startswith("__cluster_metadata"):
                    yield path

    def check_replicas_are_identical(self) -> None:
        """Once all is in sync and everybody has stopped: the same bytes everywhere."""
        assert not self.running
        names = self.partition_names()
        assert names
        for name in names:
            copies = {node_id: self.stored(node_id, name) for node_id in NODE_IDS}
            assert len(set(copies.values())) == 1, f"{name}: {[(one, len(copy)) for one, copy in copies.items()]}"


def await_ready(child: NodeChild) -> None:
    """Raises NotStarted."""
    deadline_s = time.monotonic() + START_SECONDS_MAX
    child.channel.settimeout(1)
    while not child.is_ready:
        assert time.monotonic() < deadline_s, f"{child.name} says nothing: {child.log_path.read_text()}"
        try:
            is_alive = child.receive()
        except TimeoutError:
            continue
        if not is_alive:
            raise NotStarted(child.obituary())


def _metadata_of(topic: str | None) -> Struct:
    return Struct(
        topics=None if topic is None else [Struct(topic_id=None, name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
