"""aiokafka and kafka-python in groups: clients in pure Python with their own protocol code (classic only)."""

import asyncio
import threading
import warnings
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.conformance.confluent import create
from tests.conformance.group_clients import eager_node, fill, new_group
from tests.e2e.node import Node, wait_until

with warnings.catch_warnings():
    # It reads its schemas in a way that importlib has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")

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


class KafkaPythonMember(threading.Thread):
    """Polls until it is told to stop; joining a group blocks in this client."""

    def __init__(self, node: Node, group_id: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.received: list[int] = []
        self.share: set[int] = set()
        self.is_stopped = threading.Event()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=node.bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )

    def run(self) -> None:
        while not self.is_stopped.is_set():
            for records in self._consumer.poll(timeout_ms=100).values():
                self.received += [int(record.value) for record in records]
            self.share = {part.partition for part in self._consumer.assignment()}
        self._consumer.commit()
        self._consumer.close()

    def finish(self) -> None:
        self.is_stopped.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()


def test_members_of_kafka_python_share_commit_and_go_on(node: Node, topic_name: str) -> None:
    create(node, topic_name, 4)
    fill(node, topic_name, 40, 4)
    group_id = new_group()
    one, two = (KafkaPythonMember(node, group_id, topic_name) for _ in range(2))
    one.start()
    two.start()
    wait_until(lambda: len(one.share) == 2 and one.share | two.share == {0, 1, 2, 3}, "both have their share")
    wait_until(lambda: set(one.received + two.received) == set(range(40)), "everything is read")
    two.finish()
    wait_until(lambda: one.share == {0, 1, 2, 3}, "one has it all")
    one.finish()
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, group_id=group_id, enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic_name, index) for index in range(4)]
        assert [consumer.committed(part) for part in partitions] == [10] * 4
        consumer.assign(partitions)
        consumer.commit({partitions[0]: OffsetAndMetadata(3, "a note", -1)})
        assert consumer.committed(partitions[0], metadata=True).metadata == "a note"
        assert group_id in str(admin.list_groups() if hasattr(admin, "list_groups") else admin.list_consumer_groups())
    finally:
        consumer.close()
        admin.close()
