"""A broker under test, asked by raw requests: ours and Apache Kafka's look the same from here."""

import uuid
from typing import Any

from penstock.broker.router import APIS
from penstock.protocol.messages import Struct
from tests.conformance.normalise import plain
from tests.conformance.wire import (
    DESCRIBE_TOPIC_PARTITIONS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
    PRODUCE_BY_NAME,
    Closed,
    Wire,
    create_topic,
    framed,
    list_offsets_of,
    produce_of,
)
from tests.e2e.node import wait_until

CLOSED = "the connection is closed"
APIS_BY_KEY = {api.key: api for api in APIS}


def versions_of(api_key: int) -> range:
    api = APIS_BY_KEY[api_key]
    return range(api.version_min, api.version_max + 1)


class Cluster:
    def __init__(self, port: int) -> None:
        self.port = port
        self.topic_names: dict[uuid.UUID, str] = {}
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        """A connection that is kept until the broker closes it."""
        if self._wire is None:
            self._wire = Wire(self.port)
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None

    def topic(self, name: str, partitions: int = 1, configs: dict[str, str | None] | None = None) -> uuid.UUID:
        """A new topic, once its leader is at work: Kafka answers before it is."""
        topic_id = create_topic(self.wire, name, partitions, configs)
        self.topic_names[topic_id] = f"the id of {name}"
        self.wait_for_leaders(name, partitions)
        return topic_id

    def wait_for_leaders(self, name: str, partitions: int = 1) -> None:
        asked = list_offsets_of(name, [(index, -1) for index in range(partitions)])

        def has_leaders() -> bool:
            (topic,) = self.wire.ask(LIST_OFFSETS, 7, asked).topics
            return all(partition.error_code == 0 for partition in topic.partitions)

        wait_until(has_leaders, f"{name} has leaders")

    def wait_until_gone(self, name: str) -> None:
        asked = Struct(topics=[Struct(name=name)])

        def is_gone() -> bool:
            (topic,) = self.wire.ask(DESCRIBE_TOPIC_PARTITIONS, 0, asked).topics
            return bool(topic.error_code != 0)

        wait_until(is_gone, f"{name} is gone")

    def new_producer(self) -> int:
        """A producer id. Kafka fetches its first block of them when somebody asks, and has none until then."""
        given: list[int] = []

        def is_given() -> bool:
            asked = Struct(transactional_id=None, transaction_timeout=1000)
            answer = self.wire.ask(INIT_PRODUCER_ID, 4, asked)
            if answer.error_code == 0:
                given.append(answer.producer_id)
            return bool(given)

        wait_until(is_given, "a producer id is given")
        return given[0]

    def fill(self, topic: str, *batches: bytes | bytearray, partition: int = 0) -> None:
        for batch in batches:
            asked = produce_of(topic, [(partition, batch)])
            (answer,) = self.wire.ask(PRODUCE, PRODUCE_BY_NAME, asked).responses[0].partition_responses
            assert answer.error_code == 0, answer

    def ask_raw(self, api_key: int, version: int, body: object) -> Any:
        """The decoded answer as it is. Raises Closed."""
        try:
            return self.wire.ask(api_key, version, body)
        except Closed:
            self.close()
            raise

    def ask(self, api_key: int, version: int, body: object) -> Any:
        """The answer made comparable, or CLOSED."""
        try:
            return plain(self.ask_raw(api_key, version, body), self.topic_names)
        except Closed:
            return CLOSED

    def ask_all_versions(self, api_key: int, body: object, *, first: int | None = None, last: int | None = None) -> Any:
        """By version."""
        return {
            f"v{version}": self.ask(api_key, version, body)
            for version in versions_of(api_key)
            if (first is None or version >= first) and (last is None or version <= last)
        }

    def ask_bytes(self, payload: bytes) -> Any:
        """What comes back for a hand-made request: its bytes, or CLOSED."""
        try:
            self.wire.send_bytes(framed(payload))
            return self.wire.receive().hex()
        except Closed:
            self.close()
            return CLOSED
