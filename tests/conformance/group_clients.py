"""Consumers in groups with confluent-kafka, in both protocols, and a broker that does not keep them waiting."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.conformance.confluent import make_producer
from tests.e2e.node import Node

SECONDS_MAX = 60
PROTOCOLS = ("classic", "consumer")

# Groups form at once, and sessions are as short as tests need them.
EAGER = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.assignment.interval.ms": 0,
}


def eager_node(data: Path, **settings: Any) -> Node:
    arguments = [word for name, value in (EAGER | settings).items() for word in ("-X", f"{name}={value}")]
    return Node(data, *arguments)


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def group_settings(node: Node, group_id: str, protocol: str, **settings: Any) -> dict[str, Any]:
    known = {
        "bootstrap.servers": node.bootstrap,
        "group.id": group_id,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.max.ms": 200,
    }
    if protocol == "classic":
        known |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
    return known | {name.replace("_", "."): value for name, value in settings.items()}


@contextmanager
def joined(
    node: Node,
    group_id: str,
    protocol: str,
    topics: Sequence[str],
    *,
    on_assign: Callable[..., None] | None = None,
    on_revoke: Callable[..., None] | None = None,
    **settings: Any,
) -> Iterator[Consumer]:
    consumer = Consumer(group_settings(node, group_id, protocol, **settings))
    callbacks: dict[str, Any] = {"on_assign": on_assign, "on_revoke": on_revoke}
    consumer.subscribe(list(topics), **{name: call for name, call in callbacks.items() if call is not None})
    try:
        yield consumer
    finally:
        consumer.close()


def fill(node: Node, topic: str, count: int, partitions: int, start: int = 0) -> None:
    """Numbers, round the partitions."""
    producer = make_producer(node)
    for number in range(start, start + count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(SECONDS_MAX) == 0


def _poll(consumers: Sequence[Consumer]) -> Iterator[tuple[int, Message]]:
    """What each has to offer just now, with its index. Raises KafkaException."""
    for index, consumer in enumerate(consumers):
        for message in consumer.consume(100, timeout=0.02):
            if message.error() is not None:
                raise KafkaException(message.error())
            yield index, message


def poll_all(consumers: Sequence[Consumer], is_done: Callable[[], bool], seconds_max: float = SECONDS_MAX) -> None:
    """Polls the consumers in turn until it is done; messages are lost."""
    deadline_s = time.monotonic() + seconds_max
    while not is_done():
        assert time.monotonic() < deadline_s, f"{seconds_max} s in vain"
        for _ in _poll(consumers):
            pass


def receive(consumers: Sequence[Consumer], count: int) -> list[tuple[int, Message]]:
    """At least so many messages, each with the index of who got it."""
    received: list[tuple[int, Message]] = []
    deadline_s = time.monotonic() + SECONDS_MAX
    while len(received) < count:
        assert time.monotonic() < deadline_s, f"{len(received)} of {count} messages came"
        received += _poll(consumers)
    return received


def shares(consumers: Sequence[Consumer]) -> list[list[tuple[str, int]]]:
    return [sorted((one.topic, one.partition) for one in consumer.assignment()) for consumer in consumers]


def wait_for_shares(consumers: Sequence[Consumer], sizes: Sequence[int]) -> list[list[tuple[str, int]]]:
    """Polls until the consumers have so many partitions each, in any order, none of them twice."""

    def is_done() -> bool:
        found = shares(consumers)
        partitions = [one for share in found for one in share]
        return sorted(map(len, found)) == sorted(sizes) and len(set(partitions)) == len(partitions)

    poll_all(consumers, is_done)
    return shares(consumers)


def committed(consumer: Consumer, topic: str, *partitions: int) -> list[int]:
    asked = [TopicPartition(topic, index) for index in partitions]
    return [one.offset for one in consumer.committed(asked, timeout=SECONDS_MAX)]


def values(received: list[tuple[int, Message]]) -> list[int]:
    return sorted(int(message.value() or b"") for _, message in received)
