"""The image as records: replayed into an empty image they give the same one. This is what a snapshot holds."""

from collections.abc import Iterable, Iterator

from penstock.cluster.metadata.features import METADATA_VERSION_FEATURE
from penstock.cluster.metadata.image import BrokerImage, MetadataImage
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import (
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

_NO_BROKER = -1


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """In Kafka's order: features first, since they say how to read the rest."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION_FEATURE, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker in image.brokers.values():
        yield _broker_record(broker)
    yield from image.controllers.values()
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for partition in topic.partitions.values():
            yield _partition_record(partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=_NO_BROKER, next_producer_id=image.next_producer_id)


def restore(image: MetadataImage, records: Iterable[MetadataRecord], end_offset: int) -> None:
    """Makes `image` what a snapshot says, which tells of everything below `end_offset`."""
    image.clear()
    for record in records:
        image.replay(record)
    for broker in image.brokers.values():
        # Its registration stood at its epoch; a snapshot has it elsewhere, and does not tell where it was fenced.
        broker.must_know_offset = end_offset - 1 if broker.fenced else broker.epoch
    image.end_offset = end_offset


def copy_of(image: MetadataImage) -> MetadataImage:
    """An equal image that may go its own way."""
    copy = MetadataImage()
    for record in snapshot_records(image):
        copy.replay(record)
    for broker in image.brokers.values():
        copy.brokers[broker.id].must_know_offset = broker.must_know_offset
    copy.end_offset = image.end_offset
    return copy


def _broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation,
        broker_epoch=broker.epoch,
        end_points=broker.end_points,
        features=tuple(
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
    )


def _partition_record(partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas or None,
        last_known_elr=partition.last_known_elr or None,
    )
