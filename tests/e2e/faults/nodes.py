"""Three nodes behind a proxy, each on a disk of its own that can be full and lose power, and what happens to them."""

import ctypes
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.cli.children import Child, NodeOptions
from penstock.protocol.batch import DELETE_HORIZON, BatchHeader
from penstock.protocol.messages import Struct
from penstock.protocol.records import Record, iterate_records
from penstock.testing.ports import free_ports
from tests.conformance.wire import LIST_OFFSETS, METADATA, Closed, Wire, list_offsets_of
from tests.e2e.cluster.nodes import HOST, NODE_IDS, Cluster
from tests.e2e.faults.disk import cut_power
from tests.e2e.faults.proxy import CLIENTS, Link, Proxy
from tests.e2e.node import DEFECTS, STOP_SECONDS_MAX
from tests.unit.log.made import batches_in

DISK_BYTES = 4 << 30
# Left when a disk is full: some writes still fit.
_SPACE_BYTES = 64 << 10
_REMOUNT, _DETACH = 32, 2
_REPOSITORY = Path(__file__).parents[3]
_ANSWER_SECONDS_MAX = 3.0


@dataclass(frozen=True)
class PartitionView:
    leader: int
    isr: frozenset[int]
    replicas: frozenset[int]


class FaultyCluster(Cluster):
    """Tests talk to nodes directly, by `ports`; nodes and clients to each other by the proxy."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(data, settings)
        ports = free_ports(2 * len(NODE_IDS))
        self.ports = dict(zip(NODE_IDS, ports, strict=False))
        self.public_ports = dict(zip(NODE_IDS, ports[len(NODE_IDS) :], strict=True))
        self.voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in self.public_ports.items())
        self.settings["controller.quorum.voters"] = self.voters
        self.proxy = Proxy({node_id: (self.public_ports[node_id], self.ports[node_id]) for node_id in NODE_IDS})
        mounted = [self._mount(node_id) for node_id in NODE_IDS]
        self.has_own_disks = all(mounted)
        self._log_positions = dict.fromkeys(NODE_IDS, 0)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.public_ports.values())

    def directory(self, node_id: int) -> Path:
        return self.data / f"node-{node_id}"

    def child(self, node_id: int, **_: Any) -> Any:
        settings = {
            **self.settings,
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.public_ports[node_id]}",
        }
        options = NodeOptions(node_id, str(self.directory(node_id)), HOST, self.ports[node_id], settings)
        address = f"{HOST}:{self.ports[node_id]}"
        # The node's process is one of the tests' modules.
        paths = [str(_REPOSITORY), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
        module = "tests.e2e.faults.node_process"
        return Child(f"node {node_id}", module, asdict(options), address, self.data, "text")

    def spawn(self, node_id: int) -> None:
        self.proxy.bring_up(node_id)
        super().spawn(node_id)

    def kill9(self, node_id: int) -> None:
        # Stopped first, so that the proxy refuses before anybody can find that the node does not answer.
        self.running[node_id].stop(signal.SIGKILL)
        self.proxy.take_down(node_id)
        super().kill9(node_id)

    def await_end(self, node_id: int) -> None:
        super().await_end(node_id)
        self.proxy.take_down(node_id)

    def cut_power(self, chance: random.Random) -> int:
        """Of all nodes at once; how many unsynced bytes are gone."""
        for child in self.running.values():
            child.stop(signal.SIGKILL)
        for node_id in tuple(self.running):
            self.kill9(node_id)
        return sum(cut_power(self.directory(node_id), chance) for node_id in NODE_IDS)

    # Disks

    def _mount(self, node_id: int) -> bool:
        directory = self.directory(node_id)
        directory.mkdir(exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"size={DISK_BYTES}".encode()
        return bool(libc.mount(b"tmpfs", str(directory).encode(), b"tmpfs", 0, options) == 0)

    def fill_disk(self, node_id: int) -> None:
        """There is hardly more space than what is in use."""
        found = os.statvfs(self.directory(node_id))
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._resize(node_id, used + _SPACE_BYTES)

    def empty_disk(self, node_id: int) -> None:
        self._resize(node_id, DISK_BYTES)

    def _resize(self, node_id: int, size: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        while libc.mount(b"tmpfs", str(self.directory(node_id)).encode(), b"tmpfs", _REMOUNT, b"size=%d" % size) != 0:
            # Written to meanwhile.
            size += _SPACE_BYTES

    def close(self) -> None:
        """Ends everything. Defects were looked for on the way."""
        for node_id in tuple(self.paused):
            self.resume(node_id)
        for child in self.running.values():
            child.stop(signal.SIGKILL)
            child.process.wait(STOP_SECONDS_MAX)
            child.forget()
        self.running.clear()
        self.proxy.close()
        if self.has_own_disks:
            for node_id in NODE_IDS:
                ctypes.CDLL(None).umount2(str(self.directory(node_id)).encode(), _DETACH)

    # What can be seen

    def new_defects(self) -> Iterator[tuple[int, str]]:
        """Since they were last asked for: what no node may ever log, and nodes that ended by themselves."""
        for node_id in NODE_IDS:
            path = self.data / f"node-{node_id}.log"
            if not path.exists():
                continue
            size = path.stat().st_size
            # Smaller than it was: a new one was begun.
            start = self._log_positions[node_id] if self._log_positions[node_id] <= size else 0
            with path.open("rb") as file:
                file.seek(start)
                text = file.read(size - start).decode(errors="replace")
            self._log_positions[node_id] = size
            for defect in DEFECTS:
                if defect in text:
                    around = text.index(defect)
                    yield node_id, text[max(0, around - 300) : around + 1500]
        for node_id, child in self.running.items():
            if child.process.poll() is not None:
                yield node_id, f"ended by itself with {child.process.returncode}: {child.obituary()}"

    def views(self) -> dict[int, dict[str, PartitionView]]:
        """All partitions, as each node that runs sees them; nothing of one that does not answer."""
        found: dict[int, dict[str, PartitionView]] = {}
        for node_id in self.answering():
            try:
                with Wire(self.ports[node_id], timeout_s=_ANSWER_SECONDS_MAX) as wire:
                    answer = wire.ask(METADATA, 12, _ALL_TOPICS)
            except (OSError, Closed):
                found[node_id] = {}
                continue
            found[node_id] = {
                f"{topic.name}-{one.partition_index}": PartitionView(
                    int(one.leader_id), frozenset(one.isr_nodes), frozenset(one.replica_nodes)
                )
                for topic in answer.topics
                for one in topic.partitions
            }
        return found

    def ends(self, topics: dict[str, int], isolation: int) -> dict[str, int]:
        """High watermarks (isolation 0) or last stable offsets (1), of partitions whose leader tells."""
        found: dict[str, int] = {}
        views = self.views()
        for node_id in self.answering():
            for topic, count in topics.items():
                led = [
                    index
                    for index in range(count)
                    if (view := views.get(node_id, {}).get(f"{topic}-{index}")) and view.leader == node_id
                ]
                if led:
                    found |= self._ends_on(node_id, topic, led, isolation)
        return found

    def _ends_on(self, node_id: int, topic: str, indexes: list[int], isolation: int) -> dict[str, int]:
        latest = -1
        body = list_offsets_of(topic, [(index, latest) for index in indexes])
        body.isolation_level = isolation
        try:
            with Wire(self.ports[node_id], timeout_s=_ANSWER_SECONDS_MAX) as wire:
                (answer,) = wire.ask(LIST_OFFSETS, 7, body).topics
        except (OSError, Closed):
            return {}
        return {f"{topic}-{one.partition_index}": one.offset for one in answer.partitions if not one.error_code}

    # Partitions of the network

    def cut(self, node_id: int, shape: str) -> None:
        self.proxy.cut(links_cut(node_id, shape))

    def differing_replicas(self) -> list[str]:
        """Once all is in sync and everybody has stopped."""
        differing = []
        for name in sorted(self.partition_names()):
            copies = list({self.stored(node_id, name) for node_id in NODE_IDS})
            if len(copies) > 1 and any(content_of(copy) != content_of(copies[0]) for copy in copies[1:]):
                differing.append(name)
        return differing


def content_of(log: bytes) -> list[tuple[BatchHeader, list[Record]]]:
    """What a log says, without the times at which markers and tombstones may go: each replica notes those by its own
    clock when it compacts the log."""
    found = []
    for position, header in batches_in(log):
        records = list(iterate_records(log[position : position + header.size], header))
        attributes = header.attributes & ~DELETE_HORIZON
        found.append((header._replace(attributes=attributes, base_timestamp=0, batch_length=0, crc=0), records))
    return found


def producers_in(log: bytes) -> list[tuple[int, int, int, int]]:
    """(base offset, producer id, epoch, base sequence) of each batch."""
    return [
        (header.base_offset, header.producer_id, header.producer_epoch, header.base_sequence)
        for _, header in batches_in(log)
    ]


def links_cut(node_id: int, shape: str) -> Iterable[Link]:
    """Which links do not carry when a node is cut off in this way."""
    others = [other for other in NODE_IDS if other != node_id]
    inward = [(other, node_id) for other in others]
    outward = [(node_id, other) for other in others]
    clients = [(CLIENTS, node_id), (node_id, CLIENTS)]
    match shape:
        case "node":
            return inward + outward
        case "node and clients":
            return inward + outward + clients
        case "to node":
            return inward
        case "from node":
            return outward
        case "bridge":
            # The two others reach this one, and not each other.
            first, second = others
            return [(first, second), (second, first)]
        case "clients":
            return clients
    raise ValueError(shape)


def wait_for(condition: Any, seconds_max: float) -> bool:
    deadline_s = time.monotonic() + seconds_max
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.05)
    return False


_ALL_TOPICS = Struct(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
