"""A broker in this process with its HTTP server, and a client for it."""

import uuid
from collections.abc import Callable, Iterator

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.testing.in_process import BrokerInProcess

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def served() -> Iterator[BrokerInProcess]:
    with BrokerInProcess() as broker:
        yield broker


@pytest.fixture
def http(served: BrokerInProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.http_url, timeout=30) as client:
        yield client


@pytest.fixture
def make_topic(served: BrokerInProcess) -> MakeTopic:
    admin = AdminClient({"bootstrap.servers": served.bootstrap_servers, "log_level": 0})

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(10)
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"
