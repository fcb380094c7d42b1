"""KIP-392: a consumer that names its rack reads from the replica there, and from the leader when that is gone."""

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.wire import Wire, fetch
from tests.e2e.cluster.nodes import Cluster
from tests.e2e.node import wait_until

RACKS = {1: "a", 2: "b", 3: "c"}


class Racks(Cluster):
    def spawn(self, node_id: int) -> None:
        settings = {
            **self.settings,
            "broker.rack": RACKS[node_id],
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }
        self.running[node_id] = self.child(node_id, settings=settings)


def test_a_consumer_is_sent_to_its_own_rack_and_back(tmp_path: Path) -> None:
    cluster = Racks(tmp_path / "cluster")
    cluster.start()
    try:
        cluster.create_topic("near", replicas=[[1, 2]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(100):
            producer.produce("near", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        wait_until(lambda: preferred(cluster, "b") == 2, "the leader knows that node 2 has it")
        assert preferred(cluster, "a") == -1, "the leader is there itself"
        assert preferred(cluster, "c") == -1, "no replica is there"

        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "client.rack": "b",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("near", 0, 0)])
        assert read(consumer, 100) == list(range(100))
        cluster.kill9(2)
        for number in range(100, 150):
            producer.produce("near", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        assert read(consumer, 50) == list(range(100, 150)), "from the leader, again"
        consumer.close()
    finally:
        cluster.close()


def preferred(cluster: Cluster, rack: str) -> int:
    """Where the leader sends a consumer from that rack; it gets no records then."""
    with Wire(cluster.ports[1]) as wire:
        answer = fetch(wire, "near", 0, rack_id=rack)
    assert answer.error_code == 0
    assert bool(answer.records) == (answer.preferred_read_replica < 0)
    return int(answer.preferred_read_replica)


def read(consumer: Consumer, count: int) -> list[int]:
    numbers: list[int] = []

    def is_complete() -> bool:
        numbers.extend(int(one.value() or b"") for one in consumer.consume(500, 0.1) if one.error() is None)
        return len(numbers) >= count

    wait_until(is_complete, f"{count} records are read")
    return numbers
