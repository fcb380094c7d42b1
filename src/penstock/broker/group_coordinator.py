"""The group coordinator of this node: one runner for each partition of `__consumer_offsets` that it leads."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker.coordinator_runner import CoordinatorRunner, ShardKind
from penstock.broker.coordinator_shards import CoordinatorShards
from penstock.cluster.metadata.image import RESOURCE_GROUP, MetadataImage
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.partition.partition import Partition
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.group.shard import GroupShard

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

OFFSETS_TOPIC = "__consumer_offsets"

GroupRunner = CoordinatorRunner[GroupShard]


class ImageTopics:
    """The topics that coordinators see: those of the metadata image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.version = 0

    def partition_count(self, topic_name: str) -> int | None:
        topic = self._image.topics.get(topic_name)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, topic_name: str) -> UUID | None:
        topic = self._image.topics.get(topic_name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return self._image.topics

    def partition_racks(self, topic_name: str) -> Sequence[frozenset[str]]:
        brokers = self._image.brokers
        topic = self._image.topics.get(topic_name)
        if topic is None or all(broker.rack is None for broker in brokers.values()):
            return ()
        return [
            frozenset(rack for replica in state.replicas if (rack := brokers[replica].rack) is not None)
            for state in topic.partitions.values()
        ]


class GroupCoordinator:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._topics = ImageTopics(broker.image)
        self.shards = CoordinatorShards[GroupShard](broker, OFFSETS_TOPIC, self._kind)
        self._is_change_pending = False

    def _kind(self, partition: Partition) -> ShardKind[GroupShard]:
        broker = self._broker
        return ShardKind(
            make=lambda: GroupShard(broker.settings, self._topics, broker.random, self._overrides_of),
            encode=encode_record,
            decode=decode_record,
            send=_send_nothing,
        )

    def _overrides_of(self, group_id: str) -> Mapping[str, str]:
        return self._broker.image.config_of(RESOURCE_GROUP, group_id)

    async def make_topic(self) -> None:
        """`__consumer_offsets`, if it is not there yet. Raises Refused."""
        settings = self._broker.settings
        topic = NewTopic(
            OFFSETS_TOPIC,
            num_partitions=settings["offsets.topic.num.partitions"],
            replication_factor=self._broker.replicas_of_internal_topics(settings["offsets.topic.replication.factor"]),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(settings["offsets.topic.segment.bytes"])),
            ),
        )
        await self.shards.make_topic(topic)

    def on_topics_changed(self) -> None:
        """Topics came, went or grew. Many such records come together; the shards are told once."""
        self._topics.version += 1
        if not self._is_change_pending:
            self._is_change_pending = True
            asyncio.get_running_loop().call_soon(self._tell_of_topics)

    def _tell_of_topics(self) -> None:
        self._is_change_pending = False
        for runner in self.shards.all():
            runner.tell(lambda shard, now_ms: shard.on_topics_changed(now_ms))


def _send_nothing(runner: GroupRunner, message: object) -> None:
    raise AssertionError(f"groups send no messages, but here is {message}")
