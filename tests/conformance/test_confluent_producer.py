"""confluent-kafka (librdkafka) as a producer: what it sends is what is read, byte for byte."""

import time
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

from tests.conformance.confluent import create, make_producer, read_all, send_all
from tests.e2e.node import Node

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_with_every_acks_arrives(shared_broker: Node, topic_name: str, codec: str, acks: str) -> None:
    create(shared_broker, topic_name)
    producer = make_producer(shared_broker, {"compression.type": codec, "acks": acks, "linger.ms": 5})
    values = [f"value {number} ".encode() * 20 for number in range(200)]
    send_all(producer, topic_name, values)
    assert [message.value() for message in read_all(shared_broker, topic_name, len(values))] == values


def test_an_idempotent_producer_gets_consecutive_offsets(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    producer = make_producer(shared_broker, {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 3})
    delivered = send_all(producer, topic_name, [b"%d" % number for number in range(500)])
    assert [message.offset() for message in delivered] == list(range(500))


def test_headers_null_keys_and_null_values_come_back_as_they_were(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    producer = make_producer(shared_broker)
    sent: list[dict[str, Any]] = [
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"k", "value": None, "headers": [("a", b"1"), ("a", b"2"), ("null", None), ("empty", b"")]},
        {"key": None, "value": bytes(range(256)), "headers": [("ünïcode", "ß".encode())]},
    ]
    for one in sent:
        producer.produce(topic_name, **one)
    assert producer.flush(30) == 0
    received = read_all(shared_broker, topic_name, len(sent))
    assert [(message.key(), message.value(), message.headers()) for message in received] == [
        (one["key"], one["value"], one.get("headers")) for one in sent
    ]


def test_timestamps_are_the_producers_own(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    producer = make_producer(shared_broker)
    times = [1_600_000_000_000, 1, 1_700_000_000_123]
    for timestamp in times:
        producer.produce(topic_name, b"v", timestamp=timestamp)
    assert producer.flush(30) == 0
    received = [message.timestamp() for message in read_all(shared_broker, topic_name, len(times))]
    assert received == [(TIMESTAMP_CREATE_TIME, timestamp) for timestamp in times]


def test_a_topic_of_append_time_stamps_records_itself(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, configs={"message.timestamp.type": "LogAppendTime"})
    producer = make_producer(shared_broker)
    before_ms = time.time_ns() // 1_000_000
    (delivered,) = send_all(producer, topic_name, [b"v"], timestamp=1000)
    (received,) = read_all(shared_broker, topic_name, 1)
    kind, timestamp = received.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= timestamp <= time.time_ns() // 1_000_000
    assert delivered.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, timestamp)


def test_a_large_message_is_taken_up_to_the_limit_of_the_topic(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, configs={"max.message.bytes": "5000000"})
    producer = make_producer(shared_broker, {"message.max.bytes": 10_000_000})
    value = bytes(4_900_000)
    send_all(producer, topic_name, [value])
    (received,) = read_all(shared_broker, topic_name, 1)
    assert received.value() == value
    with pytest.raises(KafkaException) as refused:
        send_all(producer, topic_name, [bytes(5_000_001)])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_topic_is_created_by_the_first_record_sent_to_it(shared_broker: Node, topic_name: str) -> None:
    send_all(make_producer(shared_broker), topic_name, [b"first"])
    assert [message.value() for message in read_all(shared_broker, topic_name, 1)] == [b"first"]


def test_keys_are_spread_over_partitions_and_stay_in_order(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, partitions=4)
    producer = make_producer(shared_broker, {"enable.idempotence": True})
    for number in range(400):
        producer.produce(topic_name, b"%d" % number, key=b"key-%d" % (number % 20))
    assert producer.flush(30) == 0
    received = read_all(shared_broker, topic_name, 400, partitions=4)
    assert {message.partition() for message in received} == {0, 1, 2, 3}
    for key in {message.key() for message in received}:
        numbers = [int(message.value()) for message in received if message.key() == key]
        assert numbers == sorted(numbers)


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, configs={"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as refused:
        send_all(make_producer(shared_broker), topic_name, [b"no key"])
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD
