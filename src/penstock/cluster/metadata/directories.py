"""AssignReplicasToDirs (KIP-858): a broker says in which of its directories replicas are.

Our own nodes have one directory each, which the controller knows from their registration; another's may have more. A
directory that the broker is not registered with counts as offline: what is there is not in sync.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.leadership import Leadership, TopicSettings
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import MetadataRecord, PartitionChangeRecord


@dataclass(frozen=True, slots=True)
class DirectoryAssignment:
    directory: uuid.UUID
    topic_id: uuid.UUID
    partition_index: int


def assign_directories(
    image: MetadataImage, topic_settings: TopicSettings, broker_id: int, requested: Sequence[DirectoryAssignment]
) -> Decision[list[ErrorCode]]:
    """The answer has an error for each, in their order. The broker's own epoch is checked already."""
    online = image.brokers[broker_id].log_dirs
    records: list[MetadataRecord] = []
    offline: list[PartitionImage] = []
    errors = []
    for one in requested:
        topic = image.topics_by_id.get(one.topic_id)
        partition = None if topic is None else topic.partitions.get(one.partition_index)
        if partition is None:
            errors.append(ErrorCode.unknown_topic_id if topic is None else ErrorCode.unknown_topic_or_partition)
        elif broker_id not in partition.replicas:
            errors.append(ErrorCode.not_leader_or_follower)
        else:
            errors.append(ErrorCode.none)
            if partition.directory_of(broker_id) != one.directory:
                records.append(_moved(partition, broker_id, one.directory))
            if one.directory not in online:
                offline.append(partition)
    records += Leadership(image, topic_settings).without_broker(broker_id, offline)
    return Decision(errors, records)


def _moved(partition: PartitionImage, broker_id: int, directory: uuid.UUID) -> PartitionChangeRecord:
    directories = tuple(
        directory if replica == broker_id else partition.directory_of(replica) for replica in partition.replicas
    )
    return PartitionChangeRecord(topic_id=partition.topic_id, partition_id=partition.index, directories=directories)
