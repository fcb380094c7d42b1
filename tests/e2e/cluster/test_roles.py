"""Nodes that only control and nodes that only serve: together they are a cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.protocol.messages import Struct
from penstock.testing.ports import free_port
from tests.conformance.wire import API_VERSIONS, METADATA, Closed, Wire
from tests.e2e.cluster.load import read_all
from tests.e2e.cluster.nodes import HOST, Cluster
from tests.e2e.cluster.test_identity import refusal_of
from tests.e2e.node import wait_until

CONTROLLER = 1
BROKERS = (2, 3)


class Divided(Cluster):
    """Node 1 controls; nodes 2 and 3 serve."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.settings["controller.quorum.voters"] = f"{CONTROLLER}@{HOST}:{self.ports[CONTROLLER]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.ports[node_id]}" for node_id in BROKERS)

    def spawn(self, node_id: int) -> None:
        roles = "controller" if node_id == CONTROLLER else "broker"
        self.running[node_id] = self.child(node_id, settings={**self.settings, "process.roles": roles})

    def answering(self) -> list[int]:
        return [node_id for node_id in super().answering() if node_id != CONTROLLER]


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[Divided]:
    cluster = Divided(tmp_path / "cluster")
    cluster.start()
    yield cluster
    cluster.close()


def test_controllers_control_and_brokers_serve(divided: Divided) -> None:
    cluster = divided
    cluster.create_topic("kept", replicas=[[2, 3], [3, 2]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(20):
        producer.produce("kept", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    assert sorted(int(value) for values in read_all(cluster, "kept", 2) for value in values) == list(range(20))
    with Wire(cluster.ports[2]) as wire:
        known = wire.ask(METADATA, 12, Struct(topics=[], allow_auto_topic_creation=False)).brokers
    assert sorted(broker.node_id for broker in known) == list(BROKERS), "a controller is no broker"
    assert not list((cluster.data / "node-1").glob("kept-*"))


def test_a_node_that_only_controls_serves_what_kafkas_controllers_do(divided: Divided) -> None:
    with Wire(divided.ports[CONTROLLER]) as wire:
        asked = Struct(client_software_name="test", client_software_version="1")
        served = {api.api_key for api in wire.ask(API_VERSIONS, 3, asked).api_keys}
        assert {18, 19, 55, 60} <= served
        assert not served & {0, 3, 8, 11}
        with pytest.raises(Closed):
            wire.ask(METADATA, 12, Struct(topics=[], allow_auto_topic_creation=False))


def test_a_broker_is_missed_and_a_controller_comes_back(divided: Divided) -> None:
    cluster = divided
    cluster.create_topic("kept", replicas=[[2, 3]])
    cluster.kill9(2)
    wait_until(lambda: cluster.partitions("kept", 3)[0].leader_id == 3, "the other broker leads")
    cluster.stop_node(CONTROLLER)
    producer = Producer({"bootstrap.servers": f"{HOST}:{cluster.ports[3]}", "acks": "1", "log_level": 0})
    producer.produce("kept", b"without a controller", partition=0)
    assert producer.flush(30) == 0
    cluster.start_node(CONTROLLER)
    cluster.start_node(2)
    cluster.await_in_sync("kept")


def test_a_second_node_of_the_same_id_is_refused_by_the_controller(divided: Divided) -> None:
    settings = {**divided.settings, "process.roles": "broker"}
    twin = divided.child(2, port=free_port(), directory=divided.data.parent / "elsewhere", settings=settings)
    assert "another node with the same id is running" in refusal_of(twin)
