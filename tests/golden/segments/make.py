"""Fills an empty Apache Kafka with the topics that the golden segments are copies of. README.md says how to run it."""

import os
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

Client = dict[str, str | int | float | bool]

FIRST_MS = 1_760_000_000_000
SMALL_INDEX = {"index.interval.bytes": "512"}
SMALL_SEGMENTS = {**SMALL_INDEX, "internal.segment.bytes": "6000"}
TOPICS = {
    "codecs": SMALL_INDEX,
    "append-time": {**SMALL_INDEX, "message.timestamp.type": "LogAppendTime"},
    "idempotent": SMALL_SEGMENTS,
    "transactions": SMALL_SEGMENTS,
}


def value(number: int, size: int) -> bytes:
    return (f"value-{number}-".encode() * 20)[:size]


def make_codecs(client: Client) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({**client, "compression.type": codec, "acks": "1"})
        for batch in range(3):
            for i in range(8):
                producer.produce(
                    "codecs",
                    key=None if i == 0 else f"key-{i}",
                    value=None if i == 1 else value(i, 120),
                    headers=[("trace", b"abc"), ("empty", b""), ("null", None)] if i % 2 else None,
                    timestamp=FIRST_MS + 1000 * batch - i * 7,
                    partition=0,
                )
            producer.flush()


def make_append_time(client: Client) -> None:
    producer = Producer({**client, "acks": "1"})
    for _ in range(12):
        for i in range(5):
            producer.produce("append-time", key=f"key-{i}", value=value(i, 90), timestamp=FIRST_MS + i, partition=0)
        producer.flush()


def make_idempotent(client: Client) -> None:
    for name in ("a", "b"):
        producer = Producer({**client, "enable.idempotence": True})
        for batch in range(25):
            timestamp = FIRST_MS + batch * 10 - (batch % 4) * 25
            for i in range(1 + batch % 6):
                producer.produce(
                    "idempotent", key=f"{name}-{i}", value=value(batch, 80), timestamp=timestamp, partition=0
                )
            producer.flush()


def make_transactions(client: Client) -> None:
    one, two = (Producer({**client, "transactional.id": name}) for name in ("one", "two"))
    one.init_transactions()
    two.init_transactions()

    def produce(producer: Producer, key: str, data: bytes, timestamp: int) -> None:
        producer.produce("transactions", key=key, value=data, timestamp=timestamp, partition=0)
        producer.flush()

    for number in range(12):
        one.begin_transaction()
        two.begin_transaction()
        for i in range(4):
            produce(one, "one", value(number, 70), FIRST_MS + number * 100 + i)
            produce(two, "two", value(number, 70), FIRST_MS + number * 100 - i)
        (one.abort_transaction if number % 3 == 1 else one.commit_transaction)()
        (two.abort_transaction if number % 2 else two.commit_transaction)()
    # The last one stays open.
    one.begin_transaction()
    produce(one, "one", b"open", FIRST_MS + 5000)


if __name__ == "__main__":
    client: Client = {"bootstrap.servers": sys.argv[1], "linger.ms": 20}
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    # Held by name: its answers are lost when the object goes before them.
    admin = AdminClient({"bootstrap.servers": sys.argv[1]})
    for created in admin.create_topics(topics).values():
        created.result()
    make_codecs(client)
    make_append_time(client)
    make_idempotent(client)
    make_transactions(client)
    # No orderly end: it would abort the transaction that is to stay open.
    os._exit(0)
