"""Producing and consuming with confluent-kafka, waiting for what was sent."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node

SECONDS_MAX = 60


def create(node: Node, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    with Wire(node.port) as wire:
        create_topic(wire, topic, partitions, dict(configs or {}))


def make_producer(node: Node, settings: dict[str, Any] | None = None) -> Producer:
    return Producer({"bootstrap.servers": node.bootstrap, "log_level": 0, "linger.ms": 1, **(settings or {})})


def make_consumer(node: Node, settings: dict[str, Any] | None = None) -> Consumer:
    """Without a group: partitions are assigned by hand."""
    return Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "log_level": 0,
            **(settings or {}),
        }
    )


def send_all(producer: Producer, topic: str, values: Sequence[bytes | None], **options: Any) -> list[Any]:
    """Sends values and waits; the delivered messages in order. Raises KafkaException for one that was refused."""
    delivered: list[Message] = []
    errors: list[Any] = []

    def report(error: Any, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            delivered.append(message)

    for value in values:
        producer.produce(topic, value, on_delivery=report, **options)
        producer.poll(0)
    left = producer.flush(SECONDS_MAX)
    if errors:
        raise KafkaException(errors[0])
    assert left == 0
    return delivered


def poll_messages(consumer: Consumer, count: int, seconds_max: float = SECONDS_MAX) -> list[Any]:
    """The next `count` messages. Raises KafkaException."""
    messages: list[Any] = []
    deadline_s = time.monotonic() + seconds_max
    while len(messages) < count and time.monotonic() < deadline_s:
        for message in consumer.consume(count - len(messages), timeout=0.5):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
    assert len(messages) == count, f"{len(messages)} of {count} messages came"
    return messages


def read_all(node: Node, topic: str, count: int, partitions: int = 1, settings: Any = None) -> list[Any]:
    """`count` messages from the start."""
    consumer = make_consumer(node, {"auto.offset.reset": "earliest", **(settings or {})})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    try:
        return poll_messages(consumer, count)
    finally:
        consumer.close()
