"""The cluster's metadata as of the last record replayed: topics, partitions, settings, brokers, features, producer ids.

`replay` is the only way it changes, so that every node with the same log has the same image. Readers on the same
event loop read the fields directly. Records between BeginTransaction and EndTransaction take effect together at the
end, or not at all (KIP-868).
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from penstock.cluster.metadata.index import PartitionIndex
from penstock.cluster.metadata.names import INTERNAL_TOPICS, collision_key
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32
# The name under which broker settings for all nodes are kept.
ALL_BROKERS = ""

__all__ = ["BrokerImage", "MetadataImage", "PartitionImage", "TopicImage"]

_NOTHING: Mapping[str, str] = {}


class TopicImage:
    __slots__ = ("id", "is_internal", "name", "partitions", "version")

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.id = topic_id
        self.is_internal = name in INTERNAL_TOPICS
        # By index, which always runs from 0 without gaps; a dictionary because a snapshot has them in any order.
        self.partitions: dict[int, PartitionImage] = {}
        # Grows with every change to a partition, for those who keep something derived from them.
        self.version = 0


class BrokerImage:
    __slots__ = (
        "end_points",
        "epoch",
        "features",
        "fenced",
        "id",
        "in_controlled_shutdown",
        "incarnation",
        "log_dirs",
        "must_know_offset",
        "rack",
    )

    def __init__(self, record: RegisterBrokerRecord, must_know_offset: int = 0) -> None:
        self.id = record.broker_id
        self.epoch = record.broker_epoch
        self.incarnation = record.incarnation_id
        self.end_points: tuple[BrokerEndpoint, ...] = record.end_points
        self.features: dict[str, tuple[int, int]] = {
            feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features
        }
        self.rack = record.rack
        self.fenced = record.fenced
        self.in_controlled_shutdown = record.in_controlled_shutdown
        self.log_dirs = record.log_dirs
        # Where the metadata log says that it is registered, or last that it is fenced: a broker that has not read so
        # far takes itself for what it no longer is.
        self.must_know_offset = must_know_offset

    @property
    def host(self) -> str:
        return self.end_points[0].host

    @property
    def port(self) -> int:
        return self.end_points[0].port

    @property
    def is_active(self) -> bool:
        """Whether it may be given new duties."""
        return not self.fenced and not self.in_controlled_shutdown


class MetadataImage:
    def __init__(self) -> None:
        # The same mapping for good: the leaders of partitions look at it.
        self.brokers: dict[int, BrokerImage] = {}
        self.clear()

    def clear(self) -> None:
        """As before the first record: a snapshot follows."""
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[uuid.UUID, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.brokers.clear()
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        # The offset after the last record replayed. Whoever replays sets it where the log holds something else in
        # between: the quorum's own control batches, or everything before a snapshot.
        self.end_offset = 0
        self.index = PartitionIndex()
        # Names with "." or "_" by what they become when both are taken for the same character.
        self.colliding_names: dict[str, set[str]] = {}
        self._shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._transaction: list[MetadataRecord] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether no records are held back until their transaction ends."""
        return self._transaction is None

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """A topic's own settings."""
        return self.configs.get((RESOURCE_TOPIC, name), _NOTHING)

    def config_of(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, resource_name), _NOTHING)

    def replay(self, record: MetadataRecord) -> None:
        """Applies one record, the one at `end_offset`. A record that does not fit what is there is a broken log: it
        raises."""
        self.end_offset += 1
        match record:
            case BeginTransactionRecord():
                if self._transaction is not None:
                    raise ValueError("the metadata log begins a transaction inside another")
                self._transaction = []
            case EndTransactionRecord():
                for held in self._end_transaction():
                    self._apply(held)
            case AbortTransactionRecord():
                self._end_transaction()
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)

    def _end_transaction(self) -> list[MetadataRecord]:
        if self._transaction is None:
            raise ValueError("the metadata log ends a transaction that it never began")
        held, self._transaction = self._transaction, None
        return held

    def _apply(self, record: MetadataRecord) -> None:
        _APPLY[type(record)](self, record)

    def _share(self, items: tuple[Any, ...] | None) -> tuple[Any, ...]:
        return self._shared.setdefault(items, items) if items else ()

    def _apply_topic(self, record: TopicRecord) -> None:
        if record.name in self.topics:
            raise ValueError(f"the metadata log creates topic {record.name} twice")
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
        if (key := collision_key(record.name)) is not None:
            self.colliding_names.setdefault(key, set()).add(record.name)

    def _apply_partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id[record.topic_id]
        replaced = topic.partitions.get(record.partition_id)
        if replaced is not None:
            self.index.remove(replaced)
        partition = PartitionImage(topic.id, record, self._share)
        topic.partitions[record.partition_id] = partition
        topic.version += 1
        self.index.add(partition)

    def _apply_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self.topics_by_id[record.topic_id]
        partition = topic.partitions[record.partition_id]
        self.index.remove(partition)
        partition.apply(record, self._share)
        self.index.add(partition)
        topic.version += 1

    def _apply_clear_elr(self, record: ClearElrRecord) -> None:
        cleared = [self.topics[record.topic_name]] if record.topic_name else self.topics.values()
        for topic in cleared:
            for partition in topic.partitions.values():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self.index.remove(partition)
                    partition.eligible_leader_replicas = partition.last_known_elr = ()
                    self.index.add(partition)
                    topic.version += 1

    def _apply_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        for partition in topic.partitions.values():
            self.index.remove(partition)
        self.configs.pop((RESOURCE_TOPIC, topic.name), None)
        if (key := collision_key(topic.name)) is not None:
            self.colliding_names[key].discard(topic.name)
            if not self.colliding_names[key]:
                del self.colliding_names[key]

    def _apply_config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self.configs.setdefault(resource, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if not configs:
            del self.configs[resource]

    def _apply_register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(record, self.end_offset - 1)

    def _apply_register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _apply_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _apply_fence_broker(self, record: FenceBrokerRecord) -> None:
        self._fence(self._broker(record.id, record.epoch))

    def _fence(self, broker: BrokerImage) -> None:
        broker.fenced = True
        broker.must_know_offset = self.end_offset - 1

    def _apply_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._broker(record.id, record.epoch).fenced = False

    def _apply_broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced > 0:
            self._fence(broker)
        elif record.fenced:
            broker.fenced = False
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = True
        if record.log_dirs:
            broker.log_dirs = record.log_dirs

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ValueError(f"the metadata log changes broker {broker_id} of epoch {epoch}, which is not registered")
        return broker

    def _apply_feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level

    def _apply_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _apply_nothing(self, record: NoOpRecord) -> None:
        pass


_APPLY: dict[type, Callable[[MetadataImage, Any], None]] = {
    TopicRecord: MetadataImage._apply_topic,
    PartitionRecord: MetadataImage._apply_partition,
    PartitionChangeRecord: MetadataImage._apply_partition_change,
    RemoveTopicRecord: MetadataImage._apply_remove_topic,
    ConfigRecord: MetadataImage._apply_config,
    RegisterBrokerRecord: MetadataImage._apply_register_broker,
    UnregisterBrokerRecord: MetadataImage._apply_unregister_broker,
    FenceBrokerRecord: MetadataImage._apply_fence_broker,
    UnfenceBrokerRecord: MetadataImage._apply_unfence_broker,
    BrokerRegistrationChangeRecord: MetadataImage._apply_broker_change,
    RegisterControllerRecord: MetadataImage._apply_register_controller,
    ClearElrRecord: MetadataImage._apply_clear_elr,
    FeatureLevelRecord: MetadataImage._apply_feature,
    ProducerIdsRecord: MetadataImage._apply_producer_ids,
    NoOpRecord: MetadataImage._apply_nothing,
}
