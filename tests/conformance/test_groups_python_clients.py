"""aiokafka in groups: a client in pure Python with its own protocol code (classic only)."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.conformance.confluent import create
from tests.conformance.group_clients import eager_node, fill, new_group
from tests.e2e.node import Node

SECONDS_MAX = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = eager_node(tmp_path_factory.mktemp("python-groups") / "data").start()
    yield node
    node.close()


def aio_member(node: Node, group_id: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=node.bootstrap,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        metadata_max_age_ms=500,
    )


async def test_members_of_aiokafka_share_commit_and_go_on(node: Node, topic_name: str) -> None:
    create(node, topic_name, 4)
    fill(node, topic_name, 40, 4)
    group_id = new_group()
    received: list[int] = []

    async def read(consumer: AIOKafkaConsumer) -> None:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            received.extend(int(record.value) for record in records)

    async with asyncio.timeout(SECONDS_MAX), aio_member(node, group_id, topic_name) as one:
        async with aio_member(node, group_id, topic_name) as two:
            while len(one.assignment()) != 2 or len(two.assignment()) != 2 or len(set(received)) < 40:
                await read(one)
                await read(two)
            await asyncio.gather(one.commit(), two.commit())
        while len(one.assignment()) != 4:
            await read(one)
        for index in range(4):
            assert await one.committed(AioPartition(topic_name, index)) == 10
    assert sorted(set(received)) == list(range(40))
    admin = AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
    await admin.start()
    try:
        assert (group_id, "consumer") in await admin.list_consumer_groups()
        kept = await admin.list_consumer_group_offsets(group_id)
        assert {part.partition: entry.offset for part, entry in kept.items()} == dict.fromkeys(range(4), 10)
    finally:
        await admin.close()
