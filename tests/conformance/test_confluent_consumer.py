"""confluent-kafka (librdkafka) as a consumer with partitions assigned by hand."""

from collections import Counter

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.conformance.confluent import create, make_consumer, make_producer, poll_messages, read_all, send_all
from tests.e2e.node import Node

BASE_MS = 1_700_000_000_000


@pytest.fixture
def hundred(shared_broker: Node, topic_name: str) -> str:
    """A topic of 100 records a second apart, in several batches."""
    create(shared_broker, topic_name)
    producer = make_producer(shared_broker, {"batch.num.messages": 7})
    for number in range(100):
        producer.produce(topic_name, b"%d" % number, timestamp=BASE_MS + 1000 * number)
    assert producer.flush(30) == 0
    return topic_name


@pytest.mark.parametrize(("start", "first"), [(OFFSET_BEGINNING, 0), (0, 0), (42, 42), (99, 99)])
def test_reading_begins_where_it_was_asked_to(shared_broker: Node, hundred: str, start: int, first: int) -> None:
    consumer = make_consumer(shared_broker)
    consumer.assign([TopicPartition(hundred, 0, start)])
    messages = poll_messages(consumer, 100 - first)
    consumer.close()
    assert [int(message.value()) for message in messages] == list(range(first, 100))
    assert [message.offset() for message in messages] == list(range(first, 100))


def test_reading_from_the_end_sees_only_what_comes_then(shared_broker: Node, hundred: str) -> None:
    consumer = make_consumer(shared_broker)
    consumer.assign([TopicPartition(hundred, 0, OFFSET_END)])
    assert consumer.poll(1.0) is None
    send_all(make_producer(shared_broker), hundred, [b"new"])
    (message,) = poll_messages(consumer, 1)
    consumer.close()
    assert (message.value(), message.offset()) == (b"new", 100)


def test_seek_goes_back_and_forth(shared_broker: Node, hundred: str) -> None:
    consumer = make_consumer(shared_broker)
    consumer.assign([TopicPartition(hundred, 0, 90)])
    assert [message.offset() for message in poll_messages(consumer, 5)] == [90, 91, 92, 93, 94]
    for offset in (10, 95, 0):
        consumer.seek(TopicPartition(hundred, 0, offset))
        assert poll_messages(consumer, 1)[0].offset() == offset
    consumer.close()


def test_offsets_for_times_finds_the_first_record_not_before(shared_broker: Node, hundred: str) -> None:
    consumer = make_consumer(shared_broker)
    asked = {BASE_MS: 0, BASE_MS - 5: 0, BASE_MS + 1: 1, BASE_MS + 50_000: 50, BASE_MS + 99_000: 99}
    for timestamp, offset in asked.items():
        (found,) = consumer.offsets_for_times([TopicPartition(hundred, 0, timestamp)], timeout=30)
        assert found.offset == offset
    (found,) = consumer.offsets_for_times([TopicPartition(hundred, 0, BASE_MS + 99_001)], timeout=30)
    assert found.offset == OFFSET_END
    consumer.close()


def test_watermarks_are_the_first_and_the_next_offset(shared_broker: Node, hundred: str) -> None:
    consumer = make_consumer(shared_broker)
    assert consumer.get_watermark_offsets(TopicPartition(hundred, 0), timeout=30) == (0, 100)
    consumer.close()


def test_a_paused_partition_is_silent_until_it_is_resumed(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, partitions=2)
    producer = make_producer(shared_broker)
    both = [TopicPartition(topic_name, index, 0) for index in range(2)]
    consumer = make_consumer(shared_broker)
    consumer.assign(both)
    for index in range(2):
        send_all(producer, topic_name, [b"before"], partition=index)
    poll_messages(consumer, 2)
    consumer.pause([both[0]])
    for index in range(2):
        send_all(producer, topic_name, [b"after"] * 10, partition=index)
    assert {message.partition() for message in poll_messages(consumer, 10)} == {1}
    assert consumer.poll(0.5) is None
    consumer.resume([both[0]])
    assert {message.partition() for message in poll_messages(consumer, 10)} == {0}
    consumer.close()


def test_an_offset_out_of_range_is_an_error_or_a_reset(shared_broker: Node, hundred: str) -> None:
    consumer = make_consumer(shared_broker)
    consumer.assign([TopicPartition(hundred, 0, 5000)])
    with pytest.raises(KafkaException) as failed:
        poll_messages(consumer, 1)
    consumer.close()
    assert failed.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    resetting = make_consumer(shared_broker, {"auto.offset.reset": "earliest"})
    resetting.assign([TopicPartition(hundred, 0, 5000)])
    assert poll_messages(resetting, 1)[0].offset() == 0
    resetting.close()


def test_an_incremental_fetch_session_over_many_partitions_brings_everything_once(
    shared_broker: Node, topic_name: str
) -> None:
    """KIP-227: after the first fetch only what changed is sent; nothing may be left out for that."""
    partitions = 200
    create(shared_broker, topic_name, partitions=partitions)
    consumer = make_consumer(shared_broker)
    consumer.assign([TopicPartition(topic_name, index, 0) for index in range(partitions)])
    producer = make_producer(shared_broker)
    seen: Counter[tuple[int, int]] = Counter()
    for round_number in range(3):
        for index in range(round_number, partitions, 3):
            for _ in range(2):
                producer.produce(topic_name, b"v", partition=index)
        assert producer.flush(30) == 0
        count = 2 * len(range(round_number, partitions, 3))
        seen.update((message.partition(), message.offset()) for message in poll_messages(consumer, count))
    consumer.close()
    assert set(seen) == {(index, offset) for index in range(partitions) for offset in range(2)}
    assert set(seen.values()) == {1}


def test_small_fetch_limits_still_bring_every_record(shared_broker: Node, topic_name: str) -> None:
    """KIP-74: a batch larger than the limits is sent all the same, so that the consumer gets on."""
    create(shared_broker, topic_name)
    values = [bytes([number]) * 3000 for number in range(50)]
    producer = make_producer(shared_broker, {"batch.num.messages": 1})
    send_all(producer, topic_name, values)
    settings = {"fetch.message.max.bytes": 1000, "fetch.max.bytes": 1000, "message.max.bytes": 1000}
    received = read_all(shared_broker, topic_name, 50, settings=settings)
    assert [message.value() for message in received] == values


def test_both_isolation_levels_see_plain_records(shared_broker: Node, hundred: str) -> None:
    for level in ("read_committed", "read_uncommitted"):
        received = read_all(shared_broker, hundred, 100, settings={"isolation.level": level})
        assert [int(message.value()) for message in received] == list(range(100))


def test_a_record_is_read_with_a_checked_crc(shared_broker: Node, hundred: str) -> None:
    assert len(read_all(shared_broker, hundred, 100, settings={"check.crcs": True})) == 100


def test_list_topics_shows_partitions_and_leaders(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, partitions=3)
    consumer = make_consumer(shared_broker)
    metadata = consumer.list_topics(topic_name, timeout=30)
    consumer.close()
    assert {index: one.leader for index, one in metadata.topics[topic_name].partitions.items()} == {0: 1, 1: 1, 2: 1}
    assert metadata.brokers[1].port == shared_broker.port
