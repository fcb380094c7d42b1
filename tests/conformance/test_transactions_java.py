"""Kafka's own transactional clients and tools, written in Java."""

import json
import os
import re

import pytest
from confluent_kafka import TopicPartition

from tests.conformance.apache_kafka import java_command
from tests.conformance.confluent import create, make_consumer, make_producer, poll_messages
from tests.conformance.java_tools import GET_OFFSETS, PRODUCER_PERFORMANCE, JavaTools
from tests.conftest import MakeBroker
from tests.e2e.copying import PARTITIONS, SOURCE, TARGET, TRANSACTION_TIMEOUT_MS, check_copy, seconds_max
from tests.e2e.node import Node, wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-tools")]

COPIED_RECORDS = int(os.environ.get("PENSTOCK_COPIED_RECORDS", "20000"))
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def committed_values(node: Node, topic: str, count: int) -> list[bytes]:
    consumer = make_consumer(node, {"isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
        return [message.value() for message in poll_messages(consumer, count)]
    finally:
        consumer.close()


def test_producer_performance_commits_what_it_sends(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    create(shared_broker, topic_name, partitions=2)
    printed = java_tools.run(
        PRODUCER_PERFORMANCE,
        *("--bootstrap-server", shared_broker.bootstrap, "--topic", topic_name),
        *("--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", topic_name, "--transaction-duration-ms", "50"),
    )
    assert "5000 records sent" in printed
    assert len(committed_values(shared_broker, topic_name, 5000)) == 5000


def test_the_message_copier_copies_all_records_exactly_once(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    source, target = f"{topic_name}-from", f"{topic_name}-to"
    create(shared_broker, source, partitions=2)
    create(shared_broker, target, partitions=2)
    producer = make_producer(shared_broker)
    for number in range(1000):
        producer.produce(source, b"%d" % number, key=b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    printed = java_tools.run(
        COPIER,
        *("--broker-list", shared_broker.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", "1000", "--consumer-group", topic_name),
        *("--transaction-size", "70", "--transactional-id", topic_name, "--enable-random-aborts"),
    )
    assert json.loads(printed.strip().splitlines()[-1])["consumed"] == 1000
    assert sorted(map(int, committed_values(shared_broker, target, 1000))) == list(range(1000))


@pytest.mark.long
@pytest.mark.timeout(seconds_max(COPIED_RECORDS) + 60)
def test_the_message_copier_copies_exactly_once_whoever_dies(make_broker: MakeBroker) -> None:
    node = make_broker()
    commands = [
        java_command(
            COPIER,
            *("--broker-list", node.bootstrap, "--input-topic", SOURCE, "--input-partition", str(index)),
            *("--output-topic", TARGET, "--consumer-group", "copiers", "--transaction-size", "200"),
            *("--transactional-id", f"copier-{index}", "--transaction-timeout", str(TRANSACTION_TIMEOUT_MS)),
        )
        for index in range(PARTITIONS)
    ]
    check_copy(node, commands, COPIED_RECORDS, disturbances=max(12, COPIED_RECORDS // 5000))


def test_kafka_transactions_lists_describes_and_aborts(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    create(shared_broker, topic_name, partitions=2)
    producer = make_producer(shared_broker, {"transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"left open", partition=1)
    assert producer.flush(30) == 0

    def transactions(*arguments: str) -> str:
        return java_tools.run(TRANSACTIONS, "--bootstrap-server", shared_broker.bootstrap, *arguments)

    assert re.search(rf"{topic_name}\s+1\s+\d+\s+Ongoing", transactions("list"))
    described = transactions("describe", "--transactional-id", topic_name)
    assert f"{topic_name}-1" in described
    producers = transactions("describe-producers", "--topic", topic_name, "--partition", "1")
    (row,) = [line.split() for line in producers.splitlines()[1:] if line.strip()]
    assert row[-1] == "0", "the transaction began at offset 0"
    transactions("abort", "--topic", topic_name, "--partition", "1", "--start-offset", "0")
    producers = transactions("describe-producers", "--topic", topic_name, "--partition", "1")
    assert "None" in producers.splitlines()[1]
    offsets = java_tools.run(
        GET_OFFSETS, "--bootstrap-server", shared_broker.bootstrap, "--topic-partitions", f"{topic_name}:1"
    )
    assert f"{topic_name}:1:2" in offsets, "the record and its marker"


def test_kafka_transactions_ends_a_transaction_by_its_id(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    """forceTerminateTransaction (KIP-939) initialises the id anew, which aborts what was open."""
    create(shared_broker, topic_name, partitions=2)
    producer = make_producer(shared_broker, {"transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"left open", partition=0)
    assert producer.flush(30) == 0
    server = ("--bootstrap-server", shared_broker.bootstrap)
    java_tools.run(TRANSACTIONS, *server, "forceTerminateTransaction", "--transactionalId", topic_name)
    wait_until(
        lambda: "Ongoing" not in java_tools.run(TRANSACTIONS, *server, "describe", "--transactional-id", topic_name),
        "the transaction is over",
    )
    producers = java_tools.run(TRANSACTIONS, *server, "describe-producers", "--topic", topic_name, "--partition", "0")
    assert "None" in producers.splitlines()[1]
