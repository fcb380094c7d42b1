"""aiokafka: a client in pure Python with its own protocol code."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from tests.conformance.confluent import create
from tests.e2e.node import Node

SECONDS_MAX = 60


async def read(node: Node, topic: str, count: int, start: int = 0) -> list[tuple[int, bytes | None]]:
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=node.bootstrap, group_id=None, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, start)
        async with asyncio.timeout(SECONDS_MAX):
            return [((record := await consumer.getone()).offset, record.value) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_records_arrive_with_every_codec_and_acks(
    shared_broker: Node, topic_name: str, codec: str | None, acks: int | str
) -> None:
    create(shared_broker, topic_name)
    values = [b"value %d" % number * 10 for number in range(50)]
    producer = AIOKafkaProducer(bootstrap_servers=shared_broker.bootstrap, compression_type=codec, acks=acks)
    async with producer:
        for future in [await producer.send(topic_name, value) for value in values]:
            await asyncio.wait_for(future, SECONDS_MAX)
    assert await read(shared_broker, topic_name, 50) == list(enumerate(values))


async def test_an_idempotent_producer_keeps_order(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    async with AIOKafkaProducer(bootstrap_servers=shared_broker.bootstrap, enable_idempotence=True) as producer:
        futures = [await producer.send(topic_name, b"%d" % number, partition=0) for number in range(300)]
        offsets = [(await asyncio.wait_for(future, SECONDS_MAX)).offset for future in futures]
    assert offsets == list(range(300))
    assert await read(shared_broker, topic_name, 10, start=290) == [(n, b"%d" % n) for n in range(290, 300)]


async def test_offsets_are_found_by_time_and_at_both_ends(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    async with AIOKafkaProducer(bootstrap_servers=shared_broker.bootstrap) as producer:
        for timestamp in (1000, 2000, 3000):
            await producer.send_and_wait(topic_name, b"v", timestamp_ms=timestamp, headers=[("h", b"1")])
    partition = TopicPartition(topic_name, 0)
    async with AIOKafkaConsumer(bootstrap_servers=shared_broker.bootstrap, group_id=None) as consumer:
        consumer.assign([partition])
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 3}
        assert (await consumer.offsets_for_times({partition: 1500}))[partition].offset == 1


async def test_topics_are_administered(shared_broker: Node, topic_name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=shared_broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic_name, 2, 1, topic_configs={"retention.ms": "1000"})])
        again = await admin.create_topics([NewTopic(topic_name, 2, 1)])
        assert [for_code(error[1]) for error in again.topic_errors] == [TopicAlreadyExistsError]
        assert topic_name in await admin.list_topics()
        await admin.create_partitions({topic_name: NewPartitions(3)})
        (described,) = await admin.describe_topics([topic_name])
        assert len(described["partitions"]) == 3
        (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic_name)])
        values = {entry[0]: entry[1] for entry in configs.resources[0][4]}
        assert values["retention.ms"] == "1000"
        await admin.delete_topics([topic_name])
        assert topic_name not in await admin.list_topics()
    finally:
        await admin.close()
