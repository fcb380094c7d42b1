"""Kafka's own Java consumer, in both protocols, and kafka-consumer-groups, in the shape of its command line tools."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.conformance.confluent import create
from tests.conformance.group_clients import (
    PROTOCOLS,
    eager_node,
    fill,
    joined,
    new_group,
    receive,
    wait_for_shares,
)
from tests.conformance.java_tools import COMPLAINTS, CONSOLE_CONSUMER, DUMP_LOG_SEGMENTS, JavaTools
from tests.e2e.node import Node

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-tools")]

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = eager_node(tmp_path_factory.mktemp("java-groups") / "data").start()
    yield node
    node.close()


def console(tools: JavaTools, node: Node, topic: str, group_id: str, protocol: str, count: int) -> list[int]:
    printed = tools.run(
        CONSOLE_CONSUMER, "--bootstrap-server", node.bootstrap, "--topic", topic, "--group", group_id,
        "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000",
        "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    return sorted(int(line) for line in printed.splitlines() if line.isdigit())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_console_consumer_reads_as_a_group_and_goes_on(
    node: Node, java_tools: JavaTools, topic_name: str, protocol: str
) -> None:
    create(node, topic_name, 3)
    fill(node, topic_name, 60, 3)
    group_id = new_group()
    assert console(java_tools, node, topic_name, group_id, protocol, 60) == list(range(60))
    fill(node, topic_name, 30, 3, start=60)
    assert console(java_tools, node, topic_name, group_id, protocol, 30) == list(range(60, 90))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_verifiable_consumer_tells_what_it_was_assigned_and_committed(
    node: Node, java_tools: JavaTools, topic_name: str, protocol: str
) -> None:
    create(node, topic_name, 2)
    fill(node, topic_name, 50, 2)
    printed = java_tools.run(
        VERIFIABLE_CONSUMER, "--bootstrap-server", node.bootstrap, "--topic", topic_name, "--group-id", new_group(),
        "--group-protocol", protocol, "--reset-policy", "earliest", "--max-messages", "50", "--verbose",
        *(("--session-timeout", "6000") if protocol == "classic" else ()),
    )  # fmt: skip
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    names = [event["name"] for event in events]
    assert "partitions_assigned" in names
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 50
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(event["success"] for event in commits)


def test_consumer_performance_reads_everything_as_a_group(node: Node, java_tools: JavaTools, topic_name: str) -> None:
    create(node, topic_name, 2)
    fill(node, topic_name, 5000, 2)
    printed = java_tools.run(
        CONSUMER_PERFORMANCE, "--bootstrap-server", node.bootstrap, "--topic", topic_name, "--num-records", "5000",
        "--hide-header", "--timeout", "30000",
    )  # fmt: skip
    assert printed.strip().splitlines()[-1].split(", ")[4] == "5000"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafka_consumer_groups_describes_a_group_with_members(
    node: Node, java_tools: JavaTools, topic_name: str, protocol: str
) -> None:
    create(node, topic_name, 2)
    fill(node, topic_name, 30, 2)
    group_id = new_group()

    def tool(*arguments: str, expect: int = 0) -> str:
        server = ("--bootstrap-server", node.bootstrap)
        return java_tools.run(CONSUMER_GROUPS, *server, *arguments, expect=expect)

    with joined(node, group_id, protocol, [topic_name], client_id="the-client") as one:
        receive([one], 30)
        one.commit(asynchronous=False)
        fill(node, topic_name, 10, 2)
        assert group_id in tool("--list").split()
        assert re.search(rf"{group_id}\s+{protocol}\s", tool("--list", "--type"), re.I)
        assert re.search(rf"{group_id}\s+Stable", tool("--list", "--state"))
        assert group_id in tool("--list", "--state", "Stable").split()
        assert group_id not in tool("--list", "--state", "Empty").split()
        offsets = tool("--describe", "--group", group_id, "--offsets")
        for index in range(2):
            assert re.search(
                rf"{group_id}\s+{topic_name}\s+{index}\s+15\s+20\s+5\s+\S+\s+/127.0.0.1\s+the-client", offsets
            )
        members = tool("--describe", "--group", group_id, "--members", "--verbose")
        assert re.search(rf"{group_id}\s+\S+\s+/127.0.0.1\s+the-client\s+2\s.*{topic_name}", members), members
        state = tool("--describe", "--group", group_id, "--state", "--verbose")
        assert re.search(rf"{group_id}\s+\S+:\d+ +\(1\)\s.*Stable\s.*1\s*$", state, re.M), state
        refused = tool("--delete", "--group", group_id, expect=0)
        assert "not empty" in refused.lower()
        refused = tool("--delete-offsets", "--group", group_id, "--topic", topic_name)
        assert "subscribed" in refused.lower()


def test_kafka_consumer_groups_resets_and_deletes(
    node: Node, java_tools: JavaTools, topic_name: str, tmp_path: Path
) -> None:
    create(node, topic_name, 2)
    fill(node, topic_name, 30, 2)
    group_id = new_group()
    with joined(node, group_id, "classic", [topic_name]) as one:
        receive([one], 30)
        one.commit(asynchronous=False)

    def tool(*arguments: str) -> str:
        server = ("--bootstrap-server", node.bootstrap, "--group", group_id)
        return java_tools.run(CONSUMER_GROUPS, *server, *arguments)

    def offsets(printed: str) -> dict[int, int]:
        found = re.findall(rf"{group_id}\s+(?:classic\s+)?{topic_name}\s+(\d+)\s+(\d+)", printed, re.I)
        return {int(partition): int(offset) for partition, offset in found}

    reset = ("--reset-offsets", "--topic", topic_name)
    assert offsets(tool(*reset, "--to-earliest", "--dry-run")) == {0: 0, 1: 0}
    assert offsets(tool("--describe", "--offsets")) == {0: 15, 1: 15}
    assert offsets(tool(*reset, "--shift-by", "-5", "--execute")) == {0: 10, 1: 10}
    assert offsets(tool("--describe", "--offsets")) == {0: 10, 1: 10}
    assert offsets(tool(*reset, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")) == {0: 0, 1: 0}
    assert offsets(tool(*reset, "--to-latest", "--execute")) == {0: 15, 1: 15}
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic_name},0,3\n{topic_name},1,4\n")
    assert offsets(tool("--reset-offsets", "--from-file", str(plan), "--execute")) == {0: 3, 1: 4}
    assert "Successful" in tool("--delete-offsets", "--topic", f"{topic_name}:0")
    assert offsets(tool("--describe", "--offsets")) == {1: 4}
    assert "successful" in tool("--delete").lower()
    listed = java_tools.run(CONSUMER_GROUPS, "--bootstrap-server", node.bootstrap, "--list")
    assert group_id not in listed.split()


def test_dump_log_segments_reads_every_record_of_the_offsets_topic(java_tools: JavaTools, tmp_path: Path) -> None:
    node = eager_node(tmp_path / "offsets", **{"offsets.topic.num.partitions": 1}).start()
    try:
        create(node, "dumped", 2)
        for protocol in PROTOCOLS:
            with (
                joined(node, f"dump-{protocol}", protocol, ["dumped"], group_instance_id="one") as one,
                joined(node, f"dump-{protocol}", protocol, ["^dump.*"]) as two,
            ):
                wait_for_shares([one, two], [1, 1])
                one.commit(offsets=[TopicPartition("dumped", index, 5) for index in range(2)], asynchronous=False)
    finally:
        node.close()
    files = ",".join(str(path) for path in (node.directory / "__consumer_offsets-0").glob("*.log"))
    printed = java_tools.run(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--deep-iteration", "--files", files)
    assert not COMPLAINTS.search(printed), printed[-3000:]
    records = [line for line in printed.splitlines() if line.startswith("| offset:")]
    assert len(records) > 10
    kinds = set()
    for line in records:
        found = re.search(r" key: (\{.*?\}) payload: (\{.*\}|<DELETE>|.*)$", line)
        assert found, line
        kinds.add(json.loads(found[1] + "}" * (found[1].count("{") - found[1].count("}")))["type"])
    # Offsets (1), classic groups (2), and what the new protocol keeps: group, member, target, assignment and more.
    assert {"1", "2", "3", "5", "6", "7", "8"} <= set(map(str, kinds)), kinds
