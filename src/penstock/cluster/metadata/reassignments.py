"""Reassignments: a partition's replicas move to other brokers (KIP-455).

While one is under way the partition has all replicas, old and new: those to come are `adding`, those to go `removing`.
When everybody who stays is in sync, the change of the ISR that made it so completes it (`partition_change`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.leadership import Leadership, TopicSettings
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import MetadataRecord, PartitionChangeRecord
from penstock.cluster.metadata.topics import check_replicas


@dataclass(frozen=True, slots=True)
class Reassignment:
    topic: str
    partition_index: int
    # None: the one under way is cancelled.
    replicas: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class ReassignedPartition:
    topic: str
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    topic: str
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


def alter_reassignments(
    image: MetadataImage,
    topic_settings: TopicSettings,
    requested: Sequence[Reassignment],
    *,
    may_change_factor: bool,
) -> Decision[list[ReassignedPartition]]:
    leadership = Leadership(image, topic_settings)
    records: list[MetadataRecord] = []
    answer = []
    for one in requested:
        try:
            partition = _find(image, one)
            if one.replicas is None:
                record = _cancel(leadership, one.topic, partition)
            else:
                record = _reassign(image, leadership, partition, tuple(one.replicas), may_change_factor)
        except Refused as refused:
            # As Kafka does: no message where it could only repeat the code.
            message = None if refused.code is ErrorCode.no_reassignment_in_progress else refused.message
            answer.append(ReassignedPartition(one.topic, one.partition_index, refused.code, message))
        else:
            answer.append(ReassignedPartition(one.topic, one.partition_index))
            if record is not None:
                records.append(record)
    return Decision(answer, records)


def _find(image: MetadataImage, requested: Reassignment) -> PartitionImage:
    topic = image.topics.get(requested.topic)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {requested.topic}.")
    partition = topic.partitions.get(requested.partition_index)
    if partition is None:
        raise Refused(
            ErrorCode.unknown_topic_or_partition,
            f"Unable to find partition {requested.topic}:{requested.partition_index}.",
        )
    return partition


def _reassign(
    image: MetadataImage,
    leadership: Leadership,
    partition: PartitionImage,
    target: tuple[int, ...],
    may_change_factor: bool,
) -> PartitionChangeRecord | None:
    check_replicas(image, target)
    staying = [replica for replica in partition.replicas if replica not in partition.removing_replicas]
    if not may_change_factor and len(staying) != len(target):
        raise Refused(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {len(staying)} to {len(target)}",
        )
    before = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    removing = sorted(set(partition.replicas) - set(target))
    change = leadership.change(partition)
    change.replicas = (*target, *removing)
    change.removing = tuple(removing)
    change.adding = tuple(sorted(set(target) - set(before)))
    return change.record(leadership.directory_of)


def _cancel(leadership: Leadership, topic: str, partition: PartitionImage) -> PartitionChangeRecord | None:
    if not partition.is_reassigning:
        raise Refused(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    replicas = tuple(one for one in partition.replicas if one not in partition.adding_replicas)
    isr = tuple(one for one in partition.isr if one not in partition.adding_replicas)
    if not replicas:
        raise Refused(
            ErrorCode.invalid_replica_assignment, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    if not isr:
        _, may_be_unclean = leadership.rules_of(partition)
        if not may_be_unclean:
            raise Refused(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {topic}:{partition.index} because it would require an "
                "unclean leader election.",
            )
        isr = replicas[:1]
    change = leadership.change(partition)
    change.isr, change.replicas, change.removing, change.adding = isr, replicas, (), ()
    return change.record(leadership.directory_of)


def list_reassignments(image: MetadataImage, requested: Iterable[tuple[str, int]] | None) -> list[OngoingReassignment]:
    """Those of the partitions named, or all, that are under way."""
    if requested is None:
        partitions = list(image.index.reassigning)
    else:
        topics = ((image.topics.get(name), index) for name, index in requested)
        found = (topic.partitions.get(index) for topic, index in topics if topic is not None)
        partitions = [partition for partition in found if partition is not None and partition.is_reassigning]
    return [
        OngoingReassignment(
            image.topics_by_id[partition.topic_id].name,
            partition.index,
            partition.replicas,
            partition.adding_replicas,
            partition.removing_replicas,
        )
        for partition in partitions
    ]
