"""Nodes that do not belong to the cluster are refused, with words that say what to do, and harm nothing."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from penstock.base.errors import ErrorCode
from penstock.cli.children import NodeChild, NodeOptions
from penstock.protocol.messages import Struct
from penstock.testing.ports import free_port
from tests.conformance.wire import Wire, fetch
from tests.e2e.cluster.nodes import HOST, Cluster, NotStarted, await_ready
from tests.e2e.node import wait_until

BEGIN_QUORUM_EPOCH = 53


def refusal_of(child: NodeChild) -> str:
    with pytest.raises(NotStarted) as raised:
        await_ready(child)
    child.forget()
    return str(raised.value)


def test_who_does_not_belong_is_refused_with_words(cluster: Cluster) -> None:
    cluster.create_topic("kept")
    epoch_before = max_quorum_epoch(cluster)
    elsewhere = cluster.data.parent / "elsewhere"

    twin = refusal_of(cluster.child(2, port=free_port(), directory=elsewhere))
    assert "another node with the id 2 is running" in twin
    assert "Give this one an id of its own" in twin

    cluster.stop_node(3)
    properties = cluster.data / "node-3" / "meta.properties"
    own = properties.read_text()
    properties.write_text("".join(_foreign(line) for line in own.splitlines(keepends=True)))
    foreign = refusal_of(cluster.child(3))
    assert "belongs to another cluster" in foreign
    assert "controller.quorum.voters" in foreign
    properties.write_text(own)

    borrowed = NodeOptions(2, str(cluster.data / "node-3"), HOST, free_port(), cluster.settings)
    assert "belongs to node 3, not 2" in refusal_of(NodeChild(borrowed, elsewhere))
    in_use = NodeOptions(1, str(cluster.data / "node-1"), HOST, free_port(), cluster.settings)
    assert "in use by another node" in refusal_of(NodeChild(in_use, elsewhere))

    # And none of that has disturbed the others, or what the refused directory holds.
    assert max_quorum_epoch(cluster) <= epoch_before + 1
    cluster.start_node(3)
    cluster.await_in_sync("kept")


def test_what_is_wrong_in_a_data_directory_is_said_and_nothing_is_deleted(cluster: Cluster) -> None:
    cluster.create_topic("kept", replicas=[[1, 2, 3]])
    cluster.create_topic("mixed", replicas=[[1, 2, 3]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for topic in ("kept", "mixed"):
        producer.produce(topic, b"record", partition=0)
    assert producer.flush(30) == 0
    for topic in ("kept", "mixed"):
        wait_until(lambda topic=topic: high_watermark(cluster, topic) == 1, f"node 3 knows that {topic} has a record")  # type: ignore[misc]
    cluster.stop_node(3)
    home = cluster.data / "node-3"
    aside = cluster.data / "aside"
    (home / "kept-0").rename(aside)
    identity = home / "mixed-0" / "partition.metadata"
    identity.write_text("version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg\n")
    stored = cluster.stored(3, "mixed-0")

    refusal = refusal_of(cluster.child(3))
    assert "the directory kept-0 is missing" in refusal
    assert "Put it back" in refusal

    # Started once more it is as after a crash: in no ISR, and it copies what it lacks.
    cluster.start_node(3)
    for topic in ("kept", "mixed"):
        cluster.await_in_sync(topic)
        wait_until(lambda topic=topic: cluster.stored(3, f"{topic}-0") == cluster.stored(1, f"{topic}-0"), topic)  # type: ignore[misc]
    assert aside.is_dir()
    (stray,) = home.glob("mixed-0.*-stray")
    assert b"".join(path.read_bytes() for path in sorted(stray.glob("*.log"))) == stored
    assert "mixed-0 is of another topic" in cluster.log(3)
    cluster.stop_node(3)
    cluster.start_node(3)
    assert stray.is_dir(), "also the next start leaves it alone"


def test_a_controller_of_yesterday_is_not_obeyed(cluster: Cluster) -> None:
    old = cluster.controller()
    old_epoch = max_quorum_epoch(cluster)
    cluster.pause(old)
    wait_until(lambda: cluster.controller() != old, "another node controls")
    others = cluster.answering()
    cluster.admin.create_topics([NewTopic("new", 1, replica_assignment=[others])])["new"].result(30)
    cluster.resume(old)
    with Wire(cluster.ports[others[0]]) as wire:
        claim = Struct(partition_index=0, voter_directory_id=None, leader_id=old, leader_epoch=old_epoch)
        topics = [Struct(topic_name="__cluster_metadata", partitions=[claim])]
        endpoints = [Struct(name="CONTROLLER", host=HOST, port=cluster.ports[old])]
        request = Struct(cluster_id=None, voter_id=others[0], topics=topics, leader_endpoints=endpoints)
        (answer,) = wire.ask(BEGIN_QUORUM_EPOCH, 1, request).topics[0].partitions
    assert answer.error_code == ErrorCode.fenced_leader_epoch
    assert answer.leader_epoch > old_epoch
    # It finds out by itself that it leads nothing, and follows.
    wait_until(lambda: "new" in cluster.known_topics(old), "the old controller has what the new one decided")
    assert max_quorum_epoch(cluster) > old_epoch


def high_watermark(cluster: Cluster, topic: str) -> int:
    with Wire(cluster.ports[3]) as wire:
        return int(fetch(wire, topic, 0).high_watermark)


def _foreign(line: str) -> str:
    return "cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n" if line.startswith("cluster.id=") else line


def max_quorum_epoch(cluster: Cluster) -> int:
    lines = [line for node_id in cluster.ports for line in cluster.log(node_id).splitlines() if " epoch " in line]
    return max(int(line.split(" epoch ")[1].split()[0]) for line in lines)
