"""AssignReplicasToDirs (KIP-858)."""

import uuid

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.directories import DirectoryAssignment
from tests.unit.metadata.cluster_of_three import Brokers

OWN = uuid.UUID(int=1 << 99)
ELSEWHERE = uuid.UUID(int=1 << 100)


def assign(cluster: Brokers, broker_id: int, *requested: DirectoryAssignment) -> list[ErrorCode]:
    return cluster.do(cluster.controller.assign_directories(broker_id, cluster.epoch(broker_id), requested))


def test_the_directory_that_is_known_already_changes_nothing() -> None:
    cluster = Brokers()
    cluster.register_again(2, clean=True, log_dirs=(OWN,))
    cluster.beat(2)
    topic_id = cluster.topic()
    assert cluster.partition().directory_of(2) == OWN
    before = cluster.partition().partition_epoch
    assert assign(cluster, 2, DirectoryAssignment(OWN, topic_id, 0)) == [ErrorCode.none]
    assert cluster.partition().partition_epoch == before


def test_what_is_in_a_directory_that_is_not_registered_is_not_in_sync() -> None:
    cluster = Brokers()
    topic_id = cluster.topic()
    assert assign(cluster, 1, DirectoryAssignment(ELSEWHERE, topic_id, 0)) == [ErrorCode.none]
    assert cluster.partition().directory_of(1) == ELSEWHERE
    assert cluster.state()[:2] == (2, (2, 3))


def test_what_is_not_there_or_not_the_brokers_is_refused_one_by_one() -> None:
    cluster = Brokers()
    topic_id = cluster.topic("orders", (1, 2))
    requested = [
        DirectoryAssignment(ELSEWHERE, uuid.UUID(int=99), 0),
        DirectoryAssignment(ELSEWHERE, topic_id, 7),
        DirectoryAssignment(ELSEWHERE, topic_id, 0),
    ]
    assert assign(cluster, 3, *requested) == [
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
    ]


def test_an_old_incarnation_is_refused() -> None:
    cluster = Brokers()
    with pytest.raises(Refused) as refused:
        cluster.controller.assign_directories(1, cluster.epoch(1) - 1, [])
    assert refused.value.code is ErrorCode.stale_broker_epoch
