"""What the nodes of a cluster answer: where a partition is not led, which node decides, and how the whole looks."""

import statistics
import time
import uuid

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from tests.conformance.wire import (
    DELETE_RECORDS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    FETCH,
    FETCH_BY_NAME,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Closed,
    Wire,
    batch_of,
    fetch_of,
    list_offsets_of,
    produce,
)
from tests.e2e.cluster.nodes import NODE_IDS, Cluster
from tests.e2e.node import wait_until

LATEST, EARLIEST = -1, -2
ADD_RAFT_VOTER, REMOVE_RAFT_VOTER = 80, 81
# Less than a fetch waits, or a replica after an error.
NEW_PARTITION_SECONDS_MAX = 0.4


def error_codes_of_leader_only_requests(wire: Wire, topic: str, index: int = 0) -> list[int]:
    producers = Struct(topics=[Struct(name=topic, partition_indexes=[index])])
    deletions = Struct(topics=[Struct(name=topic, partitions=[Struct(partition_index=index, offset=0)])], timeout=5000)
    epochs = Struct(
        replica_id=-1,
        topics=[
            Struct(topic=topic, partitions=[Struct(partition=index, current_leader_epoch=-1, leader_epoch=0)]),
        ],
    )
    return [
        wire.ask(LIST_OFFSETS, 8, list_offsets_of(topic, [(index, LATEST)])).topics[0].partitions[0].error_code,
        wire.ask(DELETE_RECORDS, 2, deletions).topics[0].partitions[0].error_code,
        wire.ask(OFFSET_FOR_LEADER_EPOCH, 4, epochs).topics[0].partitions[0].error_code,
        wire.ask(DESCRIBE_PRODUCERS, 0, producers).topics[0].partitions[0].error_code,
        produce(wire, topic, batch_of([b"x"]), partition=index).error_code,
    ]


def test_answers_of_a_running_cluster(cluster: Cluster) -> None:
    """One cluster for them all: starting it takes longer than asking."""
    new_partitions_are_replicated_at_once(cluster)
    questions_for_the_leader_are_refused_by_others(cluster)
    topics_are_made_changed_and_deleted_through_any_node(cluster)
    deleted_records_are_gone_from_all_replicas(cluster)
    all_nodes_describe_the_same_cluster(cluster)
    the_voters_of_a_static_quorum_cannot_be_changed(cluster)
    a_follower_that_gives_no_topic_ids_is_answered(cluster)


def new_partitions_are_replicated_at_once(cluster: Cluster) -> None:
    """Though the followers' fetches wait at the leader, and one node knows the topic before the other."""
    taken_s = []
    for number in range(5):
        name = f"new-{number}"
        began_s = time.monotonic()
        cluster.admin.create_topics([NewTopic(name, 1, replica_assignment=[[1, 2, 3]])])[name].result(30)
        wait_until(lambda name=name: name in cluster.known_topics(1), "the leader knows it")  # type: ignore[misc]
        with Wire(cluster.ports[1]) as wire:
            assert produce(wire, name, batch_of([b"x"])).error_code == 0
        taken_s.append(time.monotonic() - began_s)
    assert statistics.median(taken_s) < NEW_PARTITION_SECONDS_MAX, taken_s


def questions_for_the_leader_are_refused_by_others(cluster: Cluster) -> None:
    cluster.create_topic("led", replicas=[[1, 2], [2, 3]])
    for node_id, expected in (
        (1, ErrorCode.none),
        (2, ErrorCode.not_leader_or_follower),
        (3, ErrorCode.not_leader_or_follower),
    ):
        with Wire(cluster.ports[node_id]) as wire:
            assert error_codes_of_leader_only_requests(wire, "led") == [expected] * 5, node_id
    unknown = ErrorCode.unknown_topic_or_partition
    with Wire(cluster.ports[1]) as wire:
        assert error_codes_of_leader_only_requests(wire, "led", 7) == [unknown] * 5
        assert error_codes_of_leader_only_requests(wire, "nothing") == [unknown] * 5


def topics_are_made_changed_and_deleted_through_any_node(cluster: Cluster) -> None:
    for node_id in NODE_IDS:
        admin = type(cluster.admin)({"bootstrap.servers": f"127.0.0.1:{cluster.ports[node_id]}", "log_level": 0})
        name = f"made-by-{node_id}"
        admin.create_topics([NewTopic(name, 2, 3)])[name].result(30)
        with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topics([NewTopic(name, 2, 3)])[name].result(30)
        cluster.await_in_sync(name)
        admin.create_partitions([NewPartitions(name, 5)])[name].result(30)
        wait_until(lambda name=name: len(cluster.partitions(name)) == 5, "there are more partitions")  # type: ignore[misc]
        cluster.await_in_sync(name)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for index in range(5):
            producer.produce(name, b"x", partition=index)
        assert producer.flush(30) == 0
        admin.delete_topics([name])[name].result(30)
        wait_until(
            lambda name=name: not any(cluster.partitions(name, one) for one in NODE_IDS),  # type: ignore[misc]
            "the topic is gone everywhere",
        )


def deleted_records_are_gone_from_all_replicas(cluster: Cluster) -> None:
    cluster.create_topic("shortened", replicas=[[2, 3, 1]])
    with Wire(cluster.ports[2]) as wire:
        assert produce(wire, "shortened", batch_of([b"x"] * 10)).error_code == 0
        body = Struct(
            topics=[Struct(name="shortened", partitions=[Struct(partition_index=0, offset=7)])], timeout=10_000
        )
        (answer,) = wire.ask(DELETE_RECORDS, 2, body).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (0, 7)
    cluster.kill9(2)
    leader = cluster.leader_of("shortened")
    assert leader in (1, 3)
    with Wire(cluster.ports[leader]) as wire:
        (earliest,) = wire.ask(LIST_OFFSETS, 8, list_offsets_of("shortened", [(0, EARLIEST)])).topics[0].partitions
        assert (earliest.error_code, earliest.offset) == (0, 7)
    cluster.start_node(2)
    cluster.await_in_sync("shortened")


def all_nodes_describe_the_same_cluster(cluster: Cluster) -> None:
    seen = []
    for node_id in NODE_IDS:
        with Wire(cluster.ports[node_id]) as wire:
            described = wire.ask(DESCRIBE_CLUSTER, 1, Struct(include_cluster_authorized_operations=False))
            (directory,) = wire.ask(DESCRIBE_LOG_DIRS, 4, Struct(topics=None)).results
        assert directory.log_dir == str(cluster.data / f"node-{node_id}")
        sizes = {
            (topic.name, one.partition_index): one.partition_size
            for topic in directory.topics
            for one in topic.partitions
            if topic.name == "shortened"
        }
        seen.append(
            (
                described.cluster_id,
                described.controller_id,
                sorted((one.broker_id, one.host, one.port) for one in described.brokers),
                sizes,
            )
        )
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == cluster.controller()
    assert [port for _, _, port in seen[0][2]] == list(cluster.ports.values())


def a_follower_that_gives_no_topic_ids_is_answered(cluster: Cluster) -> None:
    """No broker of ours does that; what pretends to be one must not bring a node into trouble."""
    body = fetch_of("shortened", [(0, 10)])
    leader = cluster.leader_of("shortened")
    body.replica_id = next(node_id for node_id in NODE_IDS if node_id != leader)
    with Wire(cluster.ports[leader]) as wire:
        try:
            (answer,) = wire.ask(FETCH, FETCH_BY_NAME, body).responses[0].partitions
        except Closed:
            pytest.fail("the connection was closed")
        assert answer.error_code == 0


def the_voters_of_a_static_quorum_cannot_be_changed(cluster: Cluster) -> None:
    """KIP-853 needs kraft.version 1; ours is 0, as that of any quorum by controller.quorum.voters."""
    listeners = [Struct(name="CONTROLLER", host="127.0.0.1", port=9)]
    directory = uuid.UUID(int=1 << 100)
    for port in cluster.ports.values():
        with Wire(port) as wire:
            new = Struct(
                cluster_id=None, timeout_ms=1000, voter_id=9, voter_directory_id=directory, listeners=listeners
            )
            assert wire.ask(ADD_RAFT_VOTER, 0, new).error_code == ErrorCode.unsupported_version
            old = Struct(cluster_id=None, voter_id=1, voter_directory_id=directory)
            assert wire.ask(REMOVE_RAFT_VOTER, 0, old).error_code == ErrorCode.unsupported_version
