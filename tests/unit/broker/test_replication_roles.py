"""The shell of replication: what others can see while a partition changes its role, and when it is on the disk."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.base.ports import DiskError, File
from penstock.broker.replication import Replication
from penstock.cluster.partition.partition import Partition
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.protocol.batch import HEADER_BYTES
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk

TOPIC_ID = UUID(int=7)


class HandSync:
    """Syncs when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[list[File], Callable[[DiskError | None], None]]] = []

    def submit(self, files: list[File], done: Callable[[DiskError | None], None]) -> None:
        self.waiting.append((list(files), done))

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for files, done in waiting:
            for file in files:
                file.sync()
            done(None)


def make_broker(sync: HandSync) -> Any:
    clock = SimpleNamespace(now_ms=lambda: 1_700_000_000_000, monotonic_ms=lambda: 1000)
    brokers = {node: SimpleNamespace(id=node, epoch=node, is_active=True, fenced=False) for node in (1, 2)}
    return SimpleNamespace(
        node_id=1,
        clock=clock,
        group_commit=sync,
        image=SimpleNamespace(brokers=brokers),
        settings={"replica.lag.time.max.ms": 30_000, "replica.fetch.backoff.ms": 1000},
    )


def make_partition(flush_mode: str = "auto") -> Partition:
    def open_log(partition: Partition) -> Log:
        return Log.open(
            SimDisk(),
            partition.name,
            partition.config,
            topic_id=TOPIC_ID,
            recovery_point=0,
            clean=True,
            log_start_offset=0,
            now_ms=0,
        )

    config = LogConfig(flush_mode=flush_mode, min_insync_replicas=1)
    return Partition("orders", TOPIC_ID, 0, config, replicas=(1, 2), isr=(1, 2), leader_epoch=0, open_log=open_log)


def state(leader: int, epoch: int) -> Any:
    return SimpleNamespace(
        leader=leader, leader_epoch=epoch, partition_epoch=epoch, isr=(1, 2), replicas=(1, 2), is_reassigning=False
    )


def append(partition: Partition) -> None:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"v")])
    assert len(batch) > HEADER_BYTES
    assert partition.append(memoryview(batch), -1, 12, 1_700_000_000_000).error_code == 0


async def test_who_waits_when_a_leader_steps_down_sees_nothing_that_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replication = Replication(make_broker(HandSync()))
    monkeypatch.setattr(replication, "_fetcher_of", lambda _: SimpleNamespace(add=lambda _: None))
    partition = make_partition()
    replication.assume_role(partition, state(1, 0), 0)
    append(partition)
    seen: list[tuple[int, bool]] = []

    def wake(size: int) -> None:
        seen.append((partition.high_watermark, partition.is_leading))

    partition.append_listeners = {wake: None}
    replication.assume_role(partition, state(2, 1), 0)
    assert seen == [(0, False)]
    replication.stop()


async def test_where_the_disk_counts_a_leader_commits_nothing_before_it_is_there() -> None:
    sync = HandSync()
    replication = Replication(make_broker(sync))
    partition = make_partition(flush_mode="ack")
    replication.assume_role(partition, state(1, 0), 0)
    sync.finish()
    append(partition)
    outcome: list[int] = []
    replication.when_replicated(partition, cast(Any, outcome.append))
    replication.on_follower_fetch(partition, 2, 2, 1, 0)
    assert (partition.high_watermark, outcome) == (0, [])
    sync.finish()
    assert (partition.high_watermark, outcome) == (1, [0])
    replication.stop()
