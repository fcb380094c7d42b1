"""KIP-392: a consumer that says where it stands is sent to a replica in its own rack."""

import pytest

from penstock.broker.fetch.nearest import NO_REPLICA, nearest_replica
from penstock.cluster.metadata.image import BrokerImage
from penstock.cluster.metadata.records import RegisterBrokerRecord
from penstock.cluster.partition.partition import Partition
from penstock.testing.sim_disk import SimDisk
from tests.unit.partition.made import make_partition
from tests.unit.replication.test_leader import Led


def broker(broker_id: int, rack: str | None, *, fenced: bool = False) -> BrokerImage:
    record = RegisterBrokerRecord(
        broker_id=broker_id, incarnation_id=None, broker_epoch=100 + broker_id, end_points=(), features=(), rack=rack,
        fenced=fenced,
    )  # fmt: skip
    return BrokerImage(record)


BROKERS = {1: broker(1, "a"), 2: broker(2, "b"), 3: broker(3, "b")}


@pytest.fixture
def led() -> Partition:
    """Node 1 leads; of ten records node 2 has all, node 3 has eight."""
    made = Led()
    made.fetch(2, 10)
    made.fetch(3, 8)
    partition = make_partition(SimDisk(), replicas=(1, 2, 3))
    partition.leader = made.leader
    return partition


def test_the_replica_in_the_rack_that_has_most_is_the_one(led: Partition) -> None:
    assert nearest_replica(led, 4, "b", 1, BROKERS) == 2


def test_who_stands_beside_the_leader_stays_there(led: Partition) -> None:
    assert nearest_replica(led, 4, "a", 1, BROKERS) == NO_REPLICA


def test_nobody_is_sent_where_the_offset_is_not(led: Partition) -> None:
    assert nearest_replica(led, 9, "b", 1, {**BROKERS, 2: broker(2, "c")}) == NO_REPLICA
    assert nearest_replica(led, 8, "b", 1, {**BROKERS, 2: broker(2, "c")}) == 3
    assert led.leader is not None
    led.leader.followers[3].log_start_offset = 5
    assert nearest_replica(led, 4, "b", 1, {**BROKERS, 2: broker(2, "c")}) == NO_REPLICA


def test_nobody_is_sent_to_a_dead_broker_or_to_a_rack_without_one(led: Partition) -> None:
    assert nearest_replica(led, 4, "b", 1, {1: BROKERS[1], 2: broker(2, "b", fenced=True)}) == NO_REPLICA
    assert nearest_replica(led, 4, "elsewhere", 1, BROKERS) == NO_REPLICA


def test_only_a_leader_of_several_replicas_sends_anybody_away() -> None:
    assert nearest_replica(make_partition(SimDisk()), 0, "b", 1, BROKERS) == NO_REPLICA
