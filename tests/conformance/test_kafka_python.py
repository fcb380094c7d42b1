"""kafka-python: another client in pure Python, older in its habits."""

import warnings
from collections.abc import Iterator

import pytest

from tests.conformance.confluent import create
from tests.e2e.node import Node

with warnings.catch_warnings():
    # It reads its schemas in a way that importlib has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.errors import TopicAlreadyExistsError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")

SECONDS_MAX = 60


@pytest.fixture
def consumer(shared_broker: Node) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(bootstrap_servers=shared_broker.bootstrap, group_id=None, auto_offset_reset="earliest")
    yield consumer
    consumer.close()


def read(consumer: KafkaConsumer, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    records: list[tuple[int, bytes | None, bytes | None]] = []
    for _ in range(SECONDS_MAX * 2):
        for batch in consumer.poll(timeout_ms=500).values():
            records += [(record.offset, record.key, record.value) for record in batch]
        if len(records) >= count:
            break
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_every_codec_and_acks(
    shared_broker: Node, consumer: KafkaConsumer, topic_name: str, codec: str | None, acks: int | str
) -> None:
    create(shared_broker, topic_name)
    producer = KafkaProducer(
        bootstrap_servers=shared_broker.bootstrap, compression_type=codec, acks=acks, enable_idempotence=False
    )
    values = [b"value %d" % number * 10 for number in range(50)]
    for value in values:
        producer.send(topic_name, value, key=b"k")
    producer.flush(SECONDS_MAX)
    producer.close(SECONDS_MAX)
    assert read(consumer, topic_name, 50) == [(offset, b"k", value) for offset, value in enumerate(values)]


def test_an_idempotent_producer_keeps_order(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    producer = KafkaProducer(bootstrap_servers=shared_broker.bootstrap, enable_idempotence=True)
    futures = [producer.send(topic_name, b"%d" % number, partition=0) for number in range(300)]
    assert [future.get(SECONDS_MAX).offset for future in futures] == list(range(300))
    producer.close(SECONDS_MAX)


def test_offsets_are_found_by_time_and_at_both_ends(
    shared_broker: Node, consumer: KafkaConsumer, topic_name: str
) -> None:
    create(shared_broker, topic_name)
    producer = KafkaProducer(bootstrap_servers=shared_broker.bootstrap)
    for timestamp in (1000, 2000, 3000):
        producer.send(topic_name, b"v", timestamp_ms=timestamp, headers=[("h", b"1")]).get(SECONDS_MAX)
    producer.close(SECONDS_MAX)
    partition = TopicPartition(topic_name, 0)
    consumer.assign([partition])
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 3}
    assert consumer.offsets_for_times({partition: 1500})[partition].offset == 1
    assert consumer.partitions_for_topic(topic_name) == {0}


def test_topics_are_administered(shared_broker: Node, topic_name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=shared_broker.bootstrap)
    try:
        admin.create_topics([NewTopic(topic_name, 2, 1, topic_configs={"retention.ms": "1000"})])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic_name, 2, 1)])
        assert topic_name in admin.list_topics()
        admin.create_partitions({topic_name: 3})
        (described,) = admin.describe_topics([topic_name])
        assert len(described["partitions"]) == 3
        admin.delete_topics([topic_name])
        assert topic_name not in admin.list_topics()
    finally:
        admin.close()
