"""aiokafka and kafka-python in groups: clients in pure Python with their own protocol code (classic only)."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer

from tests.conformance.confluent import create
from tests.conformance.group_clients import committed, eager_node, fill, group_settings, new_group
from tests.e2e.node import Node, wait_until

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


class KafkaPythonMember:
    def __init__(self, node: Node, journal: Path, group_id: str, topic: str) -> None:
        self._journal = journal
        program = Path(__file__).with_name("kafka_python_member.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(journal), node.bootstrap, group_id, topic], stderr=subprocess.DEVNULL
        )

    def _told(self, kind: str) -> list[list[int]]:
        whole = self._journal.read_text().rpartition("\n")[0] if self._journal.exists() else ""
        return [[int(word) for word in line.split()[1:]] for line in whole.splitlines() if line[0] == kind]

    @property
    def share(self) -> set[int]:
        return set((self._told("A") or [[]])[-1])

    @property
    def received(self) -> set[int]:
        return {value for (value,) in self._told("R")}

    def finish(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS_MAX)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS_MAX)


def test_members_of_kafka_python_share_commit_and_go_on(node: Node, topic_name: str, tmp_path: Path) -> None:
    create(node, topic_name, 4)
    fill(node, topic_name, 40, 4)
    group_id = new_group()
    one, two = (KafkaPythonMember(node, tmp_path / word, group_id, topic_name) for word in ("one", "two"))
    try:
        wait_until(lambda: len(one.share) == 2 and one.share | two.share == {0, 1, 2, 3}, "both have their share")
        wait_until(lambda: one.received | two.received == set(range(40)), "everything is read")
        two.finish()
        wait_until(lambda: one.share == {0, 1, 2, 3}, "one has it all")
        one.finish()
    finally:
        one.kill()
        two.kill()
    watcher = Consumer(group_settings(node, group_id, "classic"))
    try:
        assert committed(watcher, topic_name, *range(4)) == [10] * 4
    finally:
        watcher.close()
