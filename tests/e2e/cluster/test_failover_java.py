"""Java's producer and consumer, as Kafka's own verifiable tools run them, live through kills and pauses of the nodes
that they depend on: what was acknowledged is there once, in order, and their group has read all of it."""

import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import java_command
from tests.e2e.cluster.load import read_all
from tests.e2e.cluster.nodes import Cluster
from tests.e2e.node import wait_until

TOPIC = "numbers"
GROUP = "java-readers"
PARTITIONS = 3
PER_SECOND = 500
END_SECONDS_MAX = 60

pytestmark = [pytest.mark.java, pytest.mark.skipif(kafka_jars() is None, reason="needs Apache Kafka's jars")]


class Tool:
    """One that tells what happens to it in lines of JSON."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            java_command(f"org.apache.kafka.tools.{name}", "--topic", TOPIC, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["name"] == name]

    def finish(self) -> None:
        """It sends what it still has, and says goodbye."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(END_SECONDS_MAX)
        self._reading.join(END_SECONDS_MAX)
        assert self.named("shutdown_complete")

    def close(self) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._reading.join(END_SECONDS_MAX)
        self._process.stdout.close()


@pytest.fixture
def producer(cluster: Cluster, tmp_path: Path) -> Iterator[Tool]:
    cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2")
    # The tool asks for no retries; these are the producer's own defaults.
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    tool = Tool(
        "VerifiableProducer", "--bootstrap-server", cluster.bootstrap, "--throughput", str(PER_SECOND),
        "--command-config", str(config),
    )  # fmt: skip
    yield tool
    tool.close()


@pytest.fixture
def consumer(cluster: Cluster, producer: Tool) -> Iterator[Tool]:
    tool = Tool(
        "VerifiableConsumer", "--bootstrap-server", cluster.bootstrap, "--group-id", GROUP,
        "--group-protocol", "consumer", "--verbose",
    )  # fmt: skip
    yield tool
    tool.close()


# A request to a node that hangs takes Java's clients half a minute.
@pytest.mark.parametrize("hangs", [False, pytest.param(True, marks=pytest.mark.long)], ids=["killed", "also-paused"])
def test_javas_clients_go_on_when_controller_coordinator_and_leader_die_or_hang(
    cluster: Cluster, producer: Tool, consumer: Tool, hangs: bool
) -> None:
    def await_progress() -> None:
        acknowledged = len(producer.named("producer_send_success")) + PER_SECOND
        read = len(consumer.named("record_data")) + PER_SECOND
        wait_until(lambda: len(producer.named("producer_send_success")) >= acknowledged, "Java's producer goes on")
        wait_until(lambda: len(consumer.named("record_data")) >= read, "Java's consumer goes on")

    await_progress()
    for find in (cluster.controller, lambda: cluster.group_coordinator(GROUP), lambda: cluster.leader_of(TOPIC)):
        victim = find()
        cluster.kill9(victim)
        await_progress()
        cluster.start_node(victim)
        cluster.await_in_sync(TOPIC)
        if hangs:
            victim = find()
            cluster.pause(victim)
            await_progress()
            cluster.resume(victim)
            cluster.await_in_sync(TOPIC)
    producer.finish()
    # It may be in the middle of its next one when it is told to end.
    errors = [event for event in producer.named("producer_send_error") if "closed" not in event["message"]]
    assert not errors, errors[:3]
    acknowledged = producer.named("producer_send_success")
    values = read_all(cluster, TOPIC, PARTITIONS)
    # Everything that it sent was acknowledged, and stands there once, in the order of its sending.
    assert Counter(int(value) for of_partition in values for value in of_partition) == Counter(range(len(acknowledged)))
    assert all([int(value) for value in one] == sorted(int(value) for value in one) for one in values)
    for event in acknowledged:
        assert values[event["partition"]][event["offset"]] == event["value"].encode()

    wait_until(lambda: len(_read(consumer)) == len(acknowledged), "all is read")
    consumer.finish()
    assert _read(consumer) == {(event["partition"], event["offset"]): event["value"] for event in acknowledged}


def _read(consumer: Tool) -> dict[tuple[int, int], str]:
    return {(event["partition"], event["offset"]): event["value"] for event in consumer.named("record_data")}
