"""Apache Kafka beside our broker, where Java and the jars are there."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.apache_kafka import kafka_jars
from tests.conformance.apache_kafka import KafkaNode
from tests.conformance.java_tools import JavaTools


# Before pytest-xdist looks at the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In one process, which starts one Apache Kafka and one JVM of tools: each takes as long as many of the tests."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("java"):
            item.add_marker(pytest.mark.xdist_group("apache-kafka"))


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
def java_tools() -> Iterator[JavaTools]:
    tools = JavaTools()
    yield tools
    tools.close()
