"""Apache Kafka beside our broker, where Java and the jars are there."""

import shutil
from collections.abc import Iterator

import pytest

from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import COMPARED_SETTINGS, KafkaNode
from tests.conformance.java_tools import JavaTools
from tests.e2e.node import Node


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("java") and kafka_jars() is None:
        pytest.skip("needs Java 17 and Apache Kafka's jars: run scripts/kafka-jars")
    if item.get_closest_marker("kcat") and shutil.which("kcat") is None:
        pytest.skip("needs kcat: apt-get install kcat")


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    node = KafkaNode(tmp_path_factory.mktemp("apache-kafka"))
    try:
        yield node.start()
    finally:
        node.stop()


@pytest.fixture(scope="session")
def counterpart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node of ours with the settings that the other one was given."""
    settings = [word for name, value in COMPARED_SETTINGS.items() for word in ("-X", f"{name}={value}")]
    node = Node(tmp_path_factory.mktemp("counterpart") / "data", *settings).start()
    yield node
    node.close()


@pytest.fixture(scope="session")
def java_tools() -> Iterator[JavaTools]:
    tools = JavaTools()
    yield tools
    tools.close()
