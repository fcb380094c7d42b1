"""Kafka's own tools look after a cluster of ours: its quorum, reassignments, elections, replicas out of sync."""

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.java_tools import TOPICS, JavaTools
from tests.e2e.cluster.load import Load, check_nothing_lost_doubled_or_reordered
from tests.e2e.cluster.nodes import Cluster
from tests.e2e.node import wait_until

METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
MOVED_BYTES = 6_000_000
BYTES_PER_SECOND = 1_000_000
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"


@pytest.fixture
def tools() -> Iterator[JavaTools]:
    tools = JavaTools()
    yield tools
    tools.close()


@pytest.mark.java
@pytest.mark.skipif(kafka_jars() is None, reason="needs Apache Kafka's jars")
def test_a_reassignment_is_as_fast_as_kafkas_tool_allows(cluster: Cluster, tools: JavaTools) -> None:
    """KIP-73: `--throttle` sets a rate at the brokers and names the replicas that it is for."""
    cluster.create_topic("heavy", replicas=[[1]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", "log_level": 0})
    for _ in range(MOVED_BYTES // 10_000):
        producer.produce("heavy", bytes(10_000), partition=0)
    assert producer.flush(30) == 0
    plan = cluster.data / "plan.json"
    moves = [{"topic": "heavy", "partition": 0, "replicas": [2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    command = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    began_s = time.monotonic()
    tools.run(REASSIGN_PARTITIONS, *command, "--execute", "--throttle", str(BYTES_PER_SECOND))
    wait_until(lambda: list(cluster.partitions("heavy")[0].replica_nodes) == [2], "it has moved")
    assert time.monotonic() - began_s > MOVED_BYTES / BYTES_PER_SECOND / 2, "a second's worth may go at once"
    said = tools.run(REASSIGN_PARTITIONS, *command, "--verify")
    assert "is completed" in said
    assert "Clearing broker-level throttles" in said
    wait_until(lambda: throttles(cluster) == [], "nothing is throttled any more")


def throttles(cluster: Cluster) -> list[str]:
    resource = ConfigResource(ResourceType.TOPIC, "heavy")
    entries = cluster.admin.describe_configs([resource])[resource].result(30)
    return [name for name, entry in entries.items() if "throttled" in name and entry.value]


@pytest.mark.java
@pytest.mark.skipif(kafka_jars() is None, reason="needs Apache Kafka's jars")
def test_kafkas_tools_look_after_a_cluster(cluster: Cluster, tools: JavaTools) -> None:
    cluster.create_topic("moved", replicas=[[1, 2], [2, 3], [3, 1]])
    load = Load(cluster, "moved", 3)
    load.start()
    bootstrap = ("--bootstrap-server", cluster.bootstrap)

    status = tools.run(METADATA_QUORUM, *bootstrap, "describe", "--status")
    assert f"LeaderId:               {cluster.controller()}" in status
    assert "CurrentVoters:" in status
    replication = tools.run(METADATA_QUORUM, *bootstrap, "describe", "--replication")
    assert sorted(line.split()[-1] for line in replication.splitlines()[1:]) == ["Follower", "Follower", "Leader"]

    plan = cluster.data / "plan.json"
    targets = [[3, 2, 1], [1, 2, 3], [2, 3, 1]]
    moves = [{"topic": "moved", "partition": index, "replicas": replicas} for index, replicas in enumerate(targets)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    tools.run(REASSIGN_PARTITIONS, *bootstrap, "--reassignment-json-file", str(plan), "--execute")

    def is_complete() -> bool:
        said = tools.run(REASSIGN_PARTITIONS, *bootstrap, "--reassignment-json-file", str(plan), "--verify")
        return said.count("is completed") == 3

    wait_until(is_complete, "the reassignment is complete")
    assert [list(one.replica_nodes) for one in cluster.partitions("moved").values()] == targets

    tools.run(LEADER_ELECTION, *bootstrap, "--election-type", "preferred", "--all-topic-partitions")
    wait_until(
        lambda: [one.leader_id for one in cluster.partitions("moved").values()] == [3, 1, 2], "the preferred ones lead"
    )

    describe = (*bootstrap, "--describe", "--under-replicated-partitions")
    assert "moved" not in tools.run(TOPICS, *describe)
    cluster.kill9(2)
    wait_until(lambda: "moved" in tools.run(TOPICS, *describe), "the replicas of the dead node are missed")
    cluster.start_node(2)
    cluster.await_in_sync("moved")
    assert "moved" not in tools.run(TOPICS, *describe)
    load.finish()
    check_nothing_lost_doubled_or_reordered(load, cluster)
