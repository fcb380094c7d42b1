"""What a partition does when replicas are missing: it refuses writes that could be lost, and waits for a replica that
has everything, unless it is told not to."""

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from penstock.base.errors import ErrorCode
from tests.conformance.wire import Wire, batch_of, fetch, produce, records_of
from tests.e2e.cluster.nodes import Cluster
from tests.e2e.node import wait_until


def values(cluster: Cluster, node_id: int, topic: str) -> list[bytes | None]:
    """All that is committed, as this node knows it."""
    found: list[bytes | None] = []
    with Wire(cluster.ports[node_id]) as wire:
        while True:
            # A fetch ends where a segment does.
            answer = fetch(wire, topic, len(found))
            assert answer.error_code == 0
            found += [record.value for record in records_of(answer.records)]
            if len(found) >= answer.high_watermark:
                return found


def send(cluster: Cluster, node_id: int, topic: str, value: bytes, acks: int = -1) -> int:
    with Wire(cluster.ports[node_id]) as wire:
        return int(produce(wire, topic, batch_of([value]), acks=acks).error_code)


def test_with_too_few_replicas_acks_all_is_refused_and_the_rest_goes_on(cluster: Cluster) -> None:
    """Two of three nodes are gone, and with them the majority that decides who is in sync."""
    cluster.create_topic("careful", replicas=[[1, 2, 3]], min_insync_replicas="2")
    assert send(cluster, 1, "careful", b"before") == 0
    if cluster.controller() == 2:
        # The controller must live through it, to take the first one out of the ISR.
        first, second = 3, 2
    else:
        first, second = 2, 3
    cluster.kill9(first)
    wait_until(lambda: len(cluster.partitions("careful", 1)[0].isr_nodes) == 2, "the dead one is out of the ISR")
    assert send(cluster, 1, "careful", b"with two") == 0
    cluster.stop_node(second)
    wait_until(lambda: len(cluster.partitions("careful", 1)[0].isr_nodes) == 1, "the other one is out of the ISR")
    assert send(cluster, 1, "careful", b"too few") == ErrorCode.not_enough_replicas
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", "log_level": 0})
    producer.produce("careful", b"not so careful", partition=0)
    assert producer.flush(30) == 0
    assert values(cluster, 1, "careful") == [b"before", b"with two"], "what is not committed is not read"
    for node_id in (first, second):
        cluster.start_node(node_id)
    cluster.await_in_sync("careful")
    assert send(cluster, 1, "careful", b"after") == 0
    assert values(cluster, 1, "careful") == [b"before", b"with two", b"not so careful", b"after"]


@pytest.mark.long
def test_who_missed_something_does_not_lead_unless_unclean_elections_are_on(cluster: Cluster) -> None:
    cluster.create_topic("clean", replicas=[[1, 2]])
    assert send(cluster, 1, "clean", b"both have it") == 0
    cluster.kill9(2)
    wait_until(lambda: cluster.partitions("clean", 3)[0].isr_nodes == (1,), "node 2 is out of the ISR")
    assert send(cluster, 1, "clean", b"only the leader has it") == 0
    cluster.kill9(1)
    # Two of three nodes run again, so there is a controller; but the one that has everything is not there.
    cluster.start_node(2)
    # A node is ready when the controller lets it serve; whatever that changes is decided in the same moment.
    wait_until(lambda: 2 not in cluster.partitions("clean", 3)[0].offline_replicas, "node 3 knows that node 2 serves")
    (state,) = cluster.partitions("clean", 3).values()
    assert (state.error_code, state.leader_id) == (ErrorCode.leader_not_available, -1)
    cluster.start_node(1)
    assert cluster.leader_of("clean") == 1
    cluster.await_in_sync("clean")
    assert values(cluster, 1, "clean") == [b"both have it", b"only the leader has it"]

    cluster.kill9(2)
    wait_until(lambda: cluster.partitions("clean", 3)[0].isr_nodes == (1,), "node 2 is out of the ISR")
    assert send(cluster, 1, "clean", b"to be lost") == 0
    cluster.kill9(1)
    cluster.start_node(2)
    wait_until(lambda: 2 not in cluster.partitions("clean", 3)[0].offline_replicas, "node 3 knows that node 2 serves")
    assert cluster.partitions("clean", 3)[0].leader_id == -1
    # Nobody leads; allowing it is enough, nothing else need happen.
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "clean", incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result(30)
    assert cluster.leader_of("clean") == 2
    assert send(cluster, 2, "clean", b"instead") == 0
    cluster.start_node(1)
    cluster.await_in_sync("clean")
    assert values(cluster, 2, "clean") == [b"both have it", b"only the leader has it", b"instead"]
    cluster.stop()
    assert cluster.stored(1, "clean-0") == cluster.stored(2, "clean-0")


def test_an_error_reaches_a_producer_only_when_its_time_is_up(cluster: Cluster) -> None:
    cluster.create_topic("alone", replicas=[[2]])
    cluster.kill9(2)
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "delivery.timeout.ms": 1500, "log_level": 0}
    )
    producer.produce("alone", b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.name() for error in errors if error is not None] == ["_MSG_TIMED_OUT"]
