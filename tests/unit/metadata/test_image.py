import uuid
from typing import Any

import pytest

from penstock.cluster.metadata.controller import PRODUCER_ID_BLOCK
from penstock.cluster.metadata.features import METADATA_VERSION
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from penstock.cluster.metadata.topics import NewTopic


def test_a_transaction_takes_effect_as_a_whole_at_its_end() -> None:
    """KIP-868."""
    image = MetadataImage()
    image.replay(BeginTransactionRecord(name="two topics"))
    image.replay(TopicRecord(name="one", topic_id=uuid.UUID(int=2)))
    image.replay(TopicRecord(name="two", topic_id=uuid.UUID(int=3)))
    assert image.topics == {}
    image.replay(EndTransactionRecord())
    assert list(image.topics) == ["one", "two"]


def test_an_aborted_transaction_leaves_no_trace() -> None:
    image = MetadataImage()
    image.replay(BeginTransactionRecord())
    image.replay(TopicRecord(name="one", topic_id=uuid.UUID(int=2)))
    image.replay(AbortTransactionRecord(reason="a new controller"))
    image.replay(NoOpRecord())
    assert image.topics == {}


@pytest.mark.parametrize("open_transactions", [0, 1])
def test_a_log_with_unpaired_transactions_is_broken(open_transactions: int) -> None:
    image = MetadataImage()
    for _ in range(open_transactions):
        image.replay(BeginTransactionRecord())
    with pytest.raises(ValueError, match="transaction"):
        image.replay(BeginTransactionRecord() if open_transactions else EndTransactionRecord())


def test_a_change_of_leader_raises_the_leader_epoch_and_any_change_the_partition_epoch(cluster: Any) -> None:
    (topic,) = cluster.do(cluster.controller.create_topics([NewTopic("orders")]))
    partition = cluster.image.topics["orders"].partitions[0]
    version = cluster.image.topics["orders"].version
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, isr=(1, 2)))
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 1, 0, 1)
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=2))
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 2, 1, 2)
    assert cluster.image.topics["orders"].version == version + 2


def test_equal_replica_lists_are_one_object(cluster: Any) -> None:
    cluster.do(cluster.controller.create_topics([NewTopic("orders", 2), NewTopic("bills")]))
    first, second = (cluster.image.topics["orders"].partitions[index] for index in (0, 1))
    assert first.replicas is second.replicas is first.isr is cluster.image.topics["bills"].partitions[0].replicas


def test_brokers_are_fenced_unfenced_and_forgotten(cluster: Any) -> None:
    broker = cluster.image.brokers[1]
    assert broker.is_active
    cluster.image.replay(FenceBrokerRecord(id=1, epoch=broker.epoch))
    assert not broker.is_active
    cluster.image.replay(UnfenceBrokerRecord(id=1, epoch=broker.epoch))
    cluster.image.replay(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=broker.epoch, in_controlled_shutdown=1)
    )
    assert (broker.fenced, broker.is_active) == (False, False)
    cluster.image.replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=broker.epoch))
    assert cluster.image.brokers == {}


def test_a_record_about_a_broker_of_another_epoch_is_a_broken_log(cluster: Any) -> None:
    with pytest.raises(ValueError, match="not registered"):
        cluster.image.replay(FenceBrokerRecord(id=1, epoch=cluster.image.brokers[1].epoch + 1))


def test_a_feature_of_level_zero_is_gone() -> None:
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="group.version", feature_level=1))
    assert image.features == {"group.version": 1}
    image.replay(FeatureLevelRecord(name="group.version", feature_level=0))
    assert image.features == {}


def test_the_first_broker_opens_the_log_with_its_metadata_version(cluster: Any) -> None:
    assert cluster.image.features == {
        "metadata.version": METADATA_VERSION,
        "eligible.leader.replicas.version": 1,
        "transaction.version": 2,
    }


def test_no_producer_id_is_given_twice(cluster: Any) -> None:
    epoch = cluster.image.brokers[1].epoch
    blocks = [cluster.do(cluster.controller.allocate_producer_ids(1, epoch)) for _ in range(3)]
    assert [block.start for block in blocks] == [0, PRODUCER_ID_BLOCK, 2 * PRODUCER_ID_BLOCK]
    assert cluster.image.next_producer_id == 3 * PRODUCER_ID_BLOCK
