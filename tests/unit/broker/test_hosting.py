"""A node that comes up from a crash while its disk is full: what needs space to be recovered waits for it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskFull
from penstock.base.settings import NodeSettings
from penstock.broker import hosting as hosting_module
from penstock.broker.broker import Broker, Identity
from penstock.broker.fetch.plan import read_partition
from penstock.broker.hosting import Hosting
from penstock.broker.ports import SystemClock, SystemRandom
from penstock.broker.replication import Replication
from penstock.broker.router import Router
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from penstock.cluster.partition.partition import Partition
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.protocol.fetch import FetchPartition, FetchRequest
from penstock.testing.sim_disk import SimDisk
from tests.unit.log.made import append, make_batch, make_marker

TOPIC_ID = UUID(int=7)
OFFSETS_TOPIC = b"__consumer_offsets"


class Node:
    """Node 1, which follows node 2 in the only partition there is."""

    def __init__(self, disk: SimDisk) -> None:
        self.image = MetadataImage()
        self.image.replay(TopicRecord(name="t", topic_id=TOPIC_ID))
        self.image.replay(
            PartitionRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2, 3), isr=(2, 3), leader=2, leader_epoch=5,
                partition_epoch=5, directories=(),
            )
        )  # fmt: skip
        clock = SimpleNamespace(monotonic_ms=lambda: 0, now_ms=lambda: 0)
        broker = SimpleNamespace(
            node_id=1,
            image=self.image,
            settings={"replica.fetch.backoff.ms": 1000},
            clock=clock,
            throttling=SimpleNamespace(follower=SimpleNamespace(covers=lambda _: False)),
        )
        replication = Replication(cast(Any, broker))
        # There is nobody to fetch from.
        replication._fetchers[2] = cast(Any, SimpleNamespace(add=lambda _: None, remove=lambda _: None))
        self.hosting = Hosting(
            1,
            disk,
            cast(Any, clock),
            self.image,
            lambda _: LogConfig(),
            None,
            assume_role=replication.assume_role,
            drop=replication.drop,
            on_taken_up=lambda: None,
        )
        self.hosting.load()

    @property
    def partition(self) -> Partition:
        return self.hosting.by_name[b"t"][0]

    def consumer_is_told(self) -> int:
        fetch = FetchRequest(-1, 0, 0, 1 << 20, False, 0, -1, [], [], "")
        request = FetchPartition(0, -1, 0, -1, -1, 1 << 20)
        return read_partition(self.partition, request, fetch, 1 << 20, at_least_one=True).error_code


def append_aborted(log: Log) -> None:
    append(log, make_batch(producer=(7, 0, 0), transactional=True))
    append(log, make_marker(7, 0, abort=True))


def full_disk_after_a_crash() -> SimDisk:
    """Recovery makes the index of aborted transactions anew, and there is a byte too little for it."""
    disk = SimDisk()
    append_aborted(Node(disk).partition.log)
    left = disk.hand_over()
    left.capacity_bytes = left.used_bytes() - 1
    return left


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting_module, "_SPACE_LOOK_SECONDS", 0.01)


async def test_a_replica_whose_log_needs_space_to_come_up_follows_when_there_is_some() -> None:
    disk = full_disk_after_a_crash()
    node = Node(disk)
    await asyncio.sleep(0.05)
    assert node.partition.follower is None
    disk.capacity_bytes = None
    await until(lambda: node.partition.follower is not None)
    assert not node.partition.has_failed
    assert [one.producer_id for one in node.partition.log.aborted_transactions(0, 2)] == [7]
    assert node.consumer_is_told() == ErrorCode.none


async def test_a_replica_that_waits_for_space_is_not_taken_for_the_leader() -> None:
    disk = full_disk_after_a_crash()
    node = Node(disk)
    # From here on its log can be opened; all of it would be read, as there is nobody who knows what is committed.
    disk.capacity_bytes = None
    assert not node.partition.is_leading
    assert node.consumer_is_told() == ErrorCode.not_leader_or_follower


async def test_a_stop_while_a_log_waits_for_space_is_no_clean_one() -> None:
    disk = full_disk_after_a_crash()
    node = Node(disk)
    disk.capacity_bytes = None
    node.hosting.close(is_clean=True, broker_epoch=1)
    assert not Node(disk).hosting.was_clean


async def test_another_image_brings_its_settings_before_its_roles() -> None:
    """A leader that goes on by the old `min.insync.replicas` would commit too early."""
    node = Node(SimDisk())
    seen: list[int] = []
    node.hosting._topic_config = lambda _: LogConfig(min_insync_replicas=3)
    node.hosting._assume_role = lambda partition, *_: seen.append(partition.config.min_insync_replicas)
    node.hosting.reconcile()
    assert seen == [3]


async def test_a_topic_that_is_deleted_while_its_log_waits_for_space_stays_deleted() -> None:
    disk = full_disk_after_a_crash()
    node = Node(disk)
    record = RemoveTopicRecord(topic_id=TOPIC_ID)
    node.image.replay(record)
    disk.capacity_bytes = None
    node.hosting.apply(record)
    await asyncio.sleep(0.05)
    assert not node.hosting.by_name
    assert not disk.exists("t-0")


async def test_a_coordinator_whose_log_needs_space_to_come_up_begins_when_there_is_some() -> None:
    disk = SimDisk()

    async def start() -> Broker:
        broker = Broker(
            Identity(1, "simulated", UUID(int=1 << 64)),
            data_directory="/",
            settings=NodeSettings({"node.id": "1", "offsets.topic.num.partitions": "1"}),
            disk=disk,
            clock=SystemClock(),
            random=SystemRandom(),
        )
        Router(broker)
        broker.join_quorum("localhost", 1)
        await broker.start("localhost", 1)
        return broker

    broker = await start()
    await broker.groups.make_topic()
    append_aborted(broker.topics_by_name[OFFSETS_TOPIC][0].log)
    broker.stop()
    # As after a crash.
    disk.remove(".kafka_cleanshutdown")
    disk.fail("append", ".txnindex", DiskFull("no space left"))
    broker = await start()
    assert broker.groups.shards.runner_at(0) is None
    await until(lambda: (runner := broker.groups.shards.runner_at(0)) is not None and runner.shard is not None)
    broker.stop()
