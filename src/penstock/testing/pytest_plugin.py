"""Fixtures for tests of programs that use Kafka. Installed with penstock, pytest finds them by itself.

def test_orders(penstock_broker, penstock_topic):
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap_servers})
    producer.produce(penstock_topic, b"order")
"""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.in_process import BrokerInProcess


@pytest.fixture(scope="session")
def penstock_broker() -> "Iterator[BrokerInProcess]":
    """A broker in this process for the whole session: `bootstrap_servers`, `http_url`, `schema_registry_url`."""
    from penstock.testing.in_process import BrokerInProcess

    with BrokerInProcess() as broker:
        yield broker


@pytest.fixture
def penstock_topic(penstock_broker: "BrokerInProcess") -> str:
    """A new topic of one partition, for this test alone."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    name = f"test-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": penstock_broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    return name
