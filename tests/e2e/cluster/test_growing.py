"""A quorum of one grows to three and shrinks again, while it serves (KIP-853)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from typer.testing import CliRunner

from penstock.cli.program import app
from penstock.protocol.messages import Struct
from penstock.testing.apache_kafka import kafka_jars
from penstock.testing.ports import free_port
from tests.conformance.java_tools import JavaTools
from tests.conformance.wire import API_VERSIONS, Wire
from tests.e2e.cluster.load import read_all
from tests.e2e.cluster.nodes import HOST, Cluster
from tests.e2e.cluster.test_identity import refusal_of
from tests.e2e.cluster.test_tools import METADATA_QUORUM
from tests.e2e.node import wait_until

FIRST = 1
OTHERS = (2, 3)


class Growing(Cluster):
    """Node 1 begins alone. The others are told where it is, and nothing else."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        del self.settings["controller.quorum.voters"]

    # Nodes that only control do not serve clients.
    controllers: tuple[int, ...] = ()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for node_id, port in self.ports.items() if node_id not in self.controllers)

    def spawn(self, node_id: int) -> None:
        join = {} if node_id == FIRST else {"controller.quorum.bootstrap.servers": f"{HOST}:{self.ports[FIRST]}"}
        self.running[node_id] = self.child(node_id, settings={**self.settings, **join})

    def penstock(self, *arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "-X", f"brokers={self.bootstrap}"])
        # `health` says by its exit code how the cluster is, but says it.
        is_answered = result.exit_code == 0 or (arguments[1] == "health" and result.stdout)
        assert is_answered, f"{result.output} {result.exception}"
        return result.stdout

    def voting(self) -> list[int]:
        return sorted(json.loads(self.penstock("cluster", "health", "-o", "json"))["voters"])

    def grow(self) -> None:
        for node_id in OTHERS:
            self.start_node(node_id)
            self.penstock("cluster", "promote", str(node_id))


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    cluster = Growing(tmp_path / "cluster")
    cluster.start_node(FIRST)
    yield cluster
    cluster.close()


def write(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def test_one_node_becomes_three_and_the_first_may_go(growing: Growing) -> None:
    cluster = growing
    assert cluster.voting() == [FIRST]
    cluster.admin.create_topics([NewTopic("early", 1, 1)])["early"].result(30)
    write(cluster, "early", range(10))

    cluster.grow()
    assert cluster.voting() == [1, 2, 3]
    cluster.create_topic("kept", 1, min_insync_replicas="2")
    write(cluster, "kept", range(10))
    cluster.kill9(FIRST)
    assert cluster.controller() in OTHERS
    write(cluster, "kept", range(10, 20))
    cluster.admin.create_topics([NewTopic("late", 1, 2)])["late"].result(30)

    cluster.start_node(FIRST)
    assert cluster.controller() in OTHERS, "it has not made a quorum of its own"
    cluster.await_in_sync("kept")
    (kept,) = read_all(cluster, "kept", 1)
    assert [int(value) for value in kept] == list(range(20))
    (early,) = read_all(cluster, "early", 1)
    assert len(early) == 10

    cluster.penstock("cluster", "demote", str(FIRST), "--yes")
    assert cluster.voting() == list(OTHERS)
    cluster.stop_node(FIRST)
    cluster.start_node(FIRST)
    assert cluster.voting() == list(OTHERS), "it remembers that it does not vote"


def test_a_leader_that_is_demoted_hands_over(growing: Growing) -> None:
    cluster = growing
    cluster.grow()
    leader = cluster.controller()
    cluster.penstock("cluster", "demote", str(leader), "--yes")
    wait_until(lambda: cluster.controller() != leader, "another one leads")
    assert leader not in cluster.voting()
    cluster.admin.create_topics([NewTopic("after", 1, 3)])["after"].result(30)


def test_a_node_without_its_own_identity_says_so(growing: Growing) -> None:
    cluster = growing
    cluster.stop_node(FIRST)
    properties = cluster.data / "node-1" / "meta.properties"
    own = properties.read_text()
    properties.unlink()
    refusal = refusal_of(cluster.child(FIRST))
    assert "another directory id than meta.properties has" in refusal
    properties.write_text(own)
    cluster.start_node(FIRST)


def test_who_joins_waits_for_somebody_to_answer(growing: Growing) -> None:
    cluster = growing
    cluster.stop_node(FIRST)
    cluster.spawn(2)
    wait_until(lambda: "nobody answers" in cluster.log(2), "it says what it waits for")
    cluster.stop_node(2)
    cluster.spawn(2)
    cluster.start_node(FIRST)
    cluster.await_ready(2)
    cluster.penstock("cluster", "promote", "2")
    assert cluster.voting() == [1, 2]


def test_a_node_that_only_controls_is_promoted_by_its_address(growing: Growing) -> None:
    cluster = growing
    join = {
        "controller.quorum.bootstrap.servers": f"{HOST}:{cluster.ports[FIRST]}",
        "process.roles": "controller",
    }
    cluster.running[2] = cluster.child(2, settings={**cluster.settings, **join})
    cluster.controllers = (2,)
    cluster.await_ready(2)
    result = CliRunner().invoke(app, ["cluster", "promote", "2", "-X", f"brokers={cluster.bootstrap}"])
    assert "say with --address" in str(result.exception)
    cluster.penstock("cluster", "promote", "2", "--address", f"{HOST}:{cluster.ports[2]}")
    assert cluster.voting() == [1, 2]


def test_what_was_made_with_one_node_gets_more_replicas(growing: Growing) -> None:
    cluster = growing
    assert cluster.group_coordinator("anybody") == FIRST
    cluster.grow()
    cluster.penstock("cluster", "reassign", "--replicas", "3", "--yes")
    replicas = [len(one.replica_nodes) for one in cluster.partitions("__consumer_offsets").values()]
    assert replicas == [3, 3, 3]


def test_what_cannot_be_is_refused_with_words(growing: Growing) -> None:
    cluster = growing
    for arguments, words in (
        (("promote", "1"), "node 1 votes already"),
        (("promote", "7"), "node 7 does not follow the metadata"),
        (("demote", "7"), "node 7 does not vote; those that do: 1"),
        (("demote", "1"), "there must be one"),
    ):
        result = CliRunner().invoke(app, ["cluster", *arguments, "-X", f"brokers={HOST}:{cluster.ports[FIRST]}"])
        assert result.exit_code != 0
        assert words in str(result.exception)
    both = {
        "controller.quorum.voters": f"4@{HOST}:{free_port()}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{cluster.ports[FIRST]}",
    }
    elsewhere = cluster.data.parent / "elsewhere"
    assert "exclude each other" in refusal_of(
        cluster.child(4, port=free_port(), directory=elsewhere, settings={**cluster.settings, **both})
    )


@pytest.mark.java
@pytest.mark.skipif(kafka_jars() is None, reason="needs Apache Kafka's jars")
def test_kafkas_tool_adds_a_voter_sees_it_and_removes_it(growing: Growing) -> None:
    cluster = growing
    cluster.start_node(2)
    own = cluster.data / "controller.properties"
    own.write_text(
        "process.roles=controller\n"
        "node.id=2\n"
        "controller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://{HOST}:{cluster.ports[2]}\n"
        f"controller.quorum.bootstrap.servers={HOST}:{cluster.ports[FIRST]}\n"
        f"log.dirs={cluster.data / 'node-2'}\n"
    )
    tools = JavaTools()
    try:
        command = (METADATA_QUORUM, "--bootstrap-server", cluster.bootstrap)
        tools.run(*command, "--command-config", str(own), "add-controller")
        rows = tools.run(*command, "describe", "--replication").splitlines()
        directories = {row.split()[0]: row.split()[1] for row in rows if row.strip().endswith(("Leader", "Follower"))}
        assert sorted(directories) == ["1", "2"]
        with Wire(cluster.ports[FIRST]) as wire:
            asked = Struct(client_software_name="test", client_software_version="1")
            levels = wire.ask(API_VERSIONS, 4, asked).finalized_features
        assert ("kraft.version", 1) in [(one.name, one.max_version_level) for one in levels]
        whom = ("--controller-id", "2", "--controller-directory-id", directories["2"])
        tools.run(*command, "remove-controller", *whom)
    finally:
        tools.close()
    assert cluster.voting() == [FIRST]
