"""A cluster as its operator sees it, asked once: nodes, quorum, partitions, what is moving, and how large it all is."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from penstock.cli.connection import Cluster
from penstock.cli.failures import Failed
from penstock.cli.printing import note
from penstock.cli.wire import refusal, request
from penstock.protocol.messages import Struct

DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION = 32, 4
DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION = 35, 4
LIST_REASSIGNMENTS, LIST_REASSIGNMENTS_VERSION = 46, 0
DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION = 55, 2
DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_VERSION = 60, 2

METADATA_TOPIC = "__cluster_metadata"
_TOPIC_RESOURCE = 2
_BROKER_ENDPOINTS = 1
_TIMEOUT_MS = 30_000
# A voter that fetched within that time is alive: it asks twice a second at least.
_VOTER_SILENCE_MS_MAX = 5_000

# Topic and index.
Place = tuple[str, int]


@dataclass(frozen=True)
class NodeState:
    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True)
class PartitionState:
    # None: nobody leads.
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    # Replicas that are on their way here or out, while the partition moves.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    min_isr: int = 1

    @property
    def is_under_replicated(self) -> bool:
        return any(replica not in self.isr for replica in self.replicas if replica not in self.adding)


@dataclass(frozen=True)
class QuorumState:
    leader: int
    epoch: int
    high_watermark: int
    # How many records each lacks, by node.
    voter_lags: dict[int, int]
    observer_lags: dict[int, int]
    silent_voters: tuple[int, ...] = ()
    # Where each keeps its metadata: a replica is a node and a directory. None in a quorum that is fixed.
    directories: dict[int, UUID | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterState:
    cluster_id: str
    nodes: dict[int, NodeState]
    partitions: dict[Place, PartitionState]
    # None, and why, when nobody answers for the quorum.
    quorum: QuorumState | None = None
    quorum_problem: str | None = None
    bytes_by_node: dict[int, dict[Place, int]] = field(default_factory=dict)

    def replica_counts(self) -> Counter[int]:
        return Counter(replica for partition in self.partitions.values() for replica in partition.replicas)

    def leader_counts(self) -> Counter[int]:
        return Counter(one.leader for one in self.partitions.values() if one.leader is not None)

    def size_of(self, place: Place) -> int:
        """Of one replica, as far as a node tells."""
        return max((sizes.get(place, 0) for sizes in self.bytes_by_node.values()), default=0)


def ask_state(cluster: Cluster, *, with_sizes: bool = False) -> ClusterState:
    cluster_id, nodes = ask_nodes(cluster)
    quorum, problem = None, None
    try:
        quorum = ask_quorum(cluster)
    except Failed as failure:
        problem = str(failure)
    sizes = {}
    if with_sizes:
        told = {node.id: _sizes(cluster, node) for node in nodes.values() if not node.is_fenced}
        sizes = {node_id: found for node_id, found in told.items() if found is not None}
    partitions = _partitions(cluster, has_controller=quorum is not None)
    return ClusterState(cluster_id, nodes, partitions, quorum, problem, sizes)


def ask_moving(cluster: Cluster) -> dict[Place, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The partitions that move now: replicas that come, and that go."""
    body = Struct(timeout=_TIMEOUT_MS, topics=None)
    answer = request(cluster, cluster.address, LIST_REASSIGNMENTS, LIST_REASSIGNMENTS_VERSION, body)
    _check(answer)
    return {
        (topic.name, one.partition_index): (tuple(one.adding_replicas), tuple(one.removing_replicas))
        for topic in answer.topics
        for one in topic.partitions
    }


def ask_nodes(cluster: Cluster) -> tuple[str, dict[int, NodeState]]:
    body = Struct(
        include_cluster_authorized_operations=False, endpoint_type=_BROKER_ENDPOINTS, include_fenced_brokers=True
    )
    answer = request(cluster, cluster.address, DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_VERSION, body)
    _check(answer)
    nodes = [NodeState(one.broker_id, one.host, one.port, one.rack, one.is_fenced) for one in answer.brokers]
    return answer.cluster_id, {node.id: node for node in sorted(nodes, key=lambda node: node.id)}


def ask_quorum(cluster: Cluster) -> QuorumState:
    body = Struct(topics=[Struct(topic_name=METADATA_TOPIC, partitions=[Struct(partition_index=0)])])
    answer = request(cluster, cluster.address, DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION, body)
    _check(answer)
    (quorum,) = answer.topics[0].partitions
    _check(quorum)
    end = max((one.log_end_offset for one in quorum.current_voters), default=0)
    latest_ms = max((one.last_fetch_timestamp for one in quorum.current_voters), default=-1)
    silent = tuple(
        one.replica_id
        for one in quorum.current_voters
        if one.replica_id != quorum.leader_id and latest_ms - one.last_fetch_timestamp > _VOTER_SILENCE_MS_MAX
    )
    return QuorumState(
        quorum.leader_id,
        quorum.leader_epoch,
        quorum.high_watermark,
        {one.replica_id: end - max(0, one.log_end_offset) for one in quorum.current_voters},
        {one.replica_id: end - max(0, one.log_end_offset) for one in quorum.observers},
        silent,
        {one.replica_id: one.replica_directory_id for one in (*quorum.observers, *quorum.current_voters)},
    )


def _partitions(cluster: Cluster, *, has_controller: bool) -> dict[Place, PartitionState]:
    # In this order: what ends in between is then named as moving, though it is there; not the other way round.
    moving = ask_moving(cluster) if has_controller else {}
    topics = cluster.topics()
    min_isr = _min_isr(cluster, sorted(topics))
    partitions = {}
    for name, topic in sorted(topics.items()):
        for index, one in sorted(topic.partitions.items()):
            adding, removing = moving.get((name, index), ((), ()))
            partitions[name, index] = PartitionState(
                one.leader if one.leader >= 0 else None,
                tuple(one.replicas),
                tuple(one.isrs),
                adding,
                removing,
                min_isr.get(name, 1),
            )
    return partitions


def _min_isr(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    if not topics:
        return {}
    resources = [
        Struct(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=["min.insync.replicas"])
        for name in topics
    ]
    body = Struct(resources=resources, include_synonyms=False, include_documentation=False)
    answer = request(cluster, cluster.address, DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, body)
    return {
        result.resource_name: int(config.value)
        for result in answer.results
        for config in result.configs
        if config.value is not None
    }


def _sizes(cluster: Cluster, node: NodeState) -> dict[Place, int] | None:
    """None where the node does not say: the rest is worth showing."""
    address = (node.host, node.port)
    try:
        answer = request(cluster, address, DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION, Struct(topics=None))
    except Failed as failure:
        note(f"no sizes from node {node.id}: {failure}")
        return None
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def _check(answer: Any) -> None:
    problem = refusal(answer.error_code, answer.error_message)
    if problem is not None:
        raise Failed(problem)
