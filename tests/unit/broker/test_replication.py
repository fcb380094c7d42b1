"""The shell around the roles of partitions: what those who wait can see in the midst of a change."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.fetch.following import FollowerFetch
from penstock.broker.fetch.plan import read_partition
from penstock.broker.fetch.sessions import FetchContext, FetchSession, SessionPartition
from penstock.broker.replication import Replication
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import PartitionRecord
from penstock.cluster.partition.partition import Partition
from penstock.cluster.partition.replication import ProposeIsr
from penstock.cluster.partition.throttle import Throttle
from penstock.protocol.fetch import FetchPartition, FetchRequest
from penstock.testing.sim_disk import SimDisk
from tests.conformance.wire import batch_of
from tests.unit.partition.made import NOW_MS, make_partition


def image(
    partition: Partition, leader: int, leader_epoch: int, isr: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 0
) -> PartitionImage:
    record = PartitionRecord(
        partition_id=0, topic_id=partition.topic_id, replicas=(1, 2, 3), isr=isr, leader=leader,
        leader_epoch=leader_epoch, partition_epoch=partition_epoch or leader_epoch, directories=(),
    )  # fmt: skip
    return PartitionImage(partition.topic_id, record, lambda items: items or ())


def consumer_fetch(partition: Partition) -> Any:
    request = FetchPartition(0, -1, 0, -1, -1, 1 << 20)
    fetch = FetchRequest(-1, 0, 0, 1 << 20, False, 0, -1, [], [], "")
    return read_partition(partition, request, fetch, 1 << 20, at_least_one=True)


def node() -> Any:
    others = {node_id: SimpleNamespace(epoch=node_id, is_active=True) for node_id in (2, 3)}
    return SimpleNamespace(
        node_id=1,
        image=SimpleNamespace(brokers=others),
        settings={"replica.lag.time.max.ms": 30_000, "replica.fetch.backoff.ms": 1000},
        clock=SimpleNamespace(monotonic_ms=lambda: 0, now_ms=lambda: 0),
        throttling=SimpleNamespace(leader=Throttle(), follower=SimpleNamespace(covers=lambda _: False)),
        fetch_bytes_max=1 << 20,
    )


async def test_a_follower_that_was_put_out_comes_back_when_it_fetches_though_there_is_nothing_new_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replication = Replication(node())
    partition = make_partition(SimDisk(), replicas=(1, 2, 3))
    replication.assume_role(partition, image(partition, 1, 5), 0)
    replication.on_follower_fetch(partition, 3, 3, 0, 0)
    # It was silent for too long, and has everything.
    replication.assume_role(partition, image(partition, 1, 5, isr=(1, 2), partition_epoch=6), 0)
    proposed: list[ProposeIsr] = []
    monkeypatch.setattr(replication, "_propose", lambda _, proposal: proposed.append(proposal), raising=True)
    replication.on_follower_contact(3, 3)
    assert [sorted(broker_id for broker_id, _ in one.new_isr) for one in proposed] == [[1, 2, 3]]
    replication.stop()


async def test_a_late_request_of_a_followers_other_connection_does_not_keep_it_out_of_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = node()
    replication = broker.replication = Replication(broker)
    partition = make_partition(SimDisk(), replicas=(1, 2, 3))
    topic = partition.topic_id.bytes
    broker.topics_by_id = {topic: {0: partition}}
    proposed: list[ProposeIsr] = []
    monkeypatch.setattr(replication, "_propose", lambda _, proposal: proposed.append(proposal))
    partition.append_own(batch_of([b"a"]), NOW_MS)
    replication.assume_role(partition, image(partition, 1, 5, isr=(1, 2)), 0)
    # It has everything, as its session knows; then what it said before that arrives.
    session = FetchSession(9, True, 0)
    at_the_end = FetchPartition(0, 5, 1, -1, 0, 1 << 20)
    session.partitions[topic, 0] = SessionPartition(topic, at_the_end)
    replication.on_follower_fetch(partition, 3, 3, 0, 0)
    assert proposed == []
    context = FetchContext(list(session.partitions.values()), session, is_incremental=True)
    nothing_named = FetchRequest(3, 0, 0, 1 << 20, False, 9, 4, [], [], "", replica_epoch=3)
    FollowerFetch(broker, cast(Any, None), nothing_named, context, lambda _: [], uses_topic_ids=True).answer()
    assert [sorted(broker_id for broker_id, _ in one.new_isr) for one in proposed] == [[1, 2, 3]]
    replication.stop()


async def test_a_leader_heeds_min_insync_replicas_from_when_it_is_changed() -> None:
    """Who leaves an ISR that is smaller stays eligible to lead, so what it does not have must not be committed."""
    replication = Replication(node())
    partition = make_partition(SimDisk(), replicas=(1, 2, 3))
    replication.assume_role(partition, image(partition, 1, 5), 0)
    partition.reconfigure(replace(partition.config, min_insync_replicas=3))
    replication.reconfigure()
    partition.append_own(batch_of([b"of two"]), NOW_MS)
    replication.on_follower_fetch(partition, 2, 2, 1, 0)
    replication.assume_role(partition, image(partition, 1, 5, isr=(1, 2), partition_epoch=6), 0)
    assert partition.high_watermark == 0
    partition.reconfigure(replace(partition.config, min_insync_replicas=2))
    replication.reconfigure()
    assert partition.high_watermark == 1
    replication.stop()


async def test_a_new_epoch_of_the_same_leader_goes_by_the_min_insync_replicas_that_came_before_it() -> None:
    """It may be the reason for the epoch: then nothing may be committed by the old one in between."""
    replication = Replication(node())
    partition = make_partition(SimDisk(), replicas=(1, 2, 3))
    replication.assume_role(partition, image(partition, 1, 5, isr=(1, 2)), 0)
    assert partition.leader is not None
    assert not partition.leader.is_under_min_isr
    partition.reconfigure(replace(partition.config, min_insync_replicas=3))
    replication.assume_role(partition, image(partition, 1, 6, isr=(1, 2)), 0)
    assert partition.leader.is_under_min_isr
    replication.stop()


@pytest.mark.parametrize("new_leader", [2, -1])
async def test_a_reader_that_is_woken_by_the_end_of_a_leadership_sees_nothing_that_was_not_committed(
    new_leader: int,
) -> None:
    """What is in this log only would be read, and be gone: the new leader need not have it."""
    replication = Replication(node())
    partition = make_partition(SimDisk(), replicas=(1, 2, 3))
    replication.assume_role(partition, image(partition, 1, 5), 0)
    partition.append_own(batch_of([b"only here"]), NOW_MS)
    assert consumer_fetch(partition).records is None
    seen: list[Any] = []
    partition.append_listeners = {lambda _: seen.append(consumer_fetch(partition)): None}
    cast(Any, replication)._fetcher_of = lambda _: SimpleNamespace(add=lambda _: None, remove=lambda _: None)
    replication.assume_role(partition, image(partition, new_leader, 6), 0)
    assert [one.error_code for one in seen] == [ErrorCode.not_leader_or_follower]
    assert partition.high_watermark == 0
    replication.stop()
