"""The controller: decides every change of the metadata, and changes nothing itself.

The caller's duties: append a decision's records to the metadata log as one batch, make them durable, replay them into
the image in order, and only then let the answer go. A decision rests on the image as it was, so no other may be taken
before its records are replayed.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.base.ports import Random
from penstock.base.settings import NodeSettings
from penstock.cluster.metadata import configs, topics
from penstock.cluster.metadata.configs import AlteredResource, ResourceChanges
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from penstock.cluster.metadata.topics import CreatedTopic, DeletedTopic, MorePartitions, NewTopic, PartitionsResult

# Kafka 4.3's level (4.3-IV0), whose record schemas ours are; a log opens with it.
METADATA_VERSION_FEATURE = "metadata.version"
METADATA_VERSION = 30
_METADATA_VERSION_MIN = 7

PRODUCER_ID_BLOCK = 1000

_LISTENER = "PLAINTEXT"
_PLAINTEXT = 0


class Controller:
    def __init__(self, image: MetadataImage, settings: NodeSettings, random: Random) -> None:
        self._image = image
        self._settings = settings
        self._random = random

    def create_topics(
        self, requested: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Decision[list[CreatedTopic]]:
        return topics.create_topics(self._image, self._settings, self._random, requested, validate_only=validate_only)

    def delete_topics(self, requested: Sequence[tuple[str | None, uuid.UUID | None]]) -> Decision[list[DeletedTopic]]:
        return topics.delete_topics(self._image, self._settings, requested)

    def create_partitions(
        self, requested: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Decision[list[PartitionsResult]]:
        return topics.create_partitions(self._image, self._random, requested, validate_only=validate_only)

    def alter_configs(
        self, requested: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Decision[list[AlteredResource]]:
        return configs.alter_configs(self._image, self._settings, requested, validate_only=validate_only)

    def incremental_alter_configs(
        self, requested: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Decision[list[AlteredResource]]:
        return configs.incremental_alter_configs(self._image, self._settings, requested, validate_only=validate_only)

    def allocate_producer_ids(self, broker_id: int) -> Decision[range]:
        """A block of ids that nobody was or will be given. What the broker does not use of it is lost."""
        first = self._image.next_producer_id
        block = range(first, first + PRODUCER_ID_BLOCK)
        broker = self._image.brokers.get(broker_id)
        record = ProducerIdsRecord(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.epoch,
            next_producer_id=block.stop,
        )
        return Decision(block, [record])

    def register_broker(self, broker_id: int, host: str, port: int, rack: str | None, now_ms: int) -> Decision[int]:
        """Enters the node as a broker that serves; the answer is its epoch, which grows with every registration. One
        that comes back unchanged keeps its registration."""
        records: list[MetadataRecord] = []
        if METADATA_VERSION_FEATURE not in self._image.features:
            records.append(FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=METADATA_VERSION))
        known = self._image.brokers.get(broker_id)
        if known is not None and (known.host, known.port, known.rack, known.fenced) == (host, port, rack, False):
            return Decision(known.epoch, records)
        epoch = now_ms if known is None else max(now_ms, known.epoch + 1)
        end_point = BrokerEndpoint(name=_LISTENER, host=host, port=port, security_protocol=_PLAINTEXT)
        feature = BrokerFeature(
            name=METADATA_VERSION_FEATURE,
            min_supported_version=_METADATA_VERSION_MIN,
            max_supported_version=METADATA_VERSION,
        )
        records.append(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=uuid.UUID(bytes=self._random.random_bytes(16), version=4),
                broker_epoch=epoch,
                end_points=(end_point,),
                features=(feature,),
                rack=rack,
                fenced=False,
            )
        )
        return Decision(epoch, records)

    def topic_settings(self, name: str) -> Mapping[str, Any]:
        """A topic's settings in force, typed, by name."""
        return self._settings.topic_values(self._image.topic_configs(name))
