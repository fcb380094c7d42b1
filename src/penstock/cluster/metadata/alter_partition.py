"""AlterPartition: the leader of a partition proposes another ISR (KIP-497, KIP-841, KIP-903).

A proposal counts only if the leader knew the partition as it is (leader epoch, partition epoch), and if every member it
names serves and is the incarnation that fetched (broker epoch): who was restarted in between may have lost what it had.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.leadership import Leadership, TopicSettings
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERED,
    RECOVERING,
    RECOVERY_UNCHANGED,
    MetadataRecord,
    PartitionChangeRecord,
)

ANY_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class IsrProposal:
    topic_id: uuid.UUID
    partition_index: int
    leader_epoch: int
    partition_epoch: int
    # (broker id, broker epoch); an epoch of -1 is not checked.
    new_isr: Sequence[tuple[int, int]]
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The partition as it is once the decision is committed, or an error."""

    topic_id: uuid.UUID
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    leader_id: int = 0
    leader_epoch: int = 0
    isr: Sequence[int] = ()
    leader_recovery_state: int = RECOVERED
    partition_epoch: int = 0


def alter_partitions(
    image: MetadataImage, topic_settings: TopicSettings, broker_id: int, proposals: Sequence[IsrProposal]
) -> Decision[list[AlteredPartition]]:
    """The broker's own epoch is checked already."""
    leadership = Leadership(image, topic_settings)
    records: list[MetadataRecord] = []
    answer = []
    for proposal in proposals:
        topic = image.topics_by_id.get(proposal.topic_id)
        partition = None if topic is None else topic.partitions.get(proposal.partition_index)
        if partition is None:
            error = ErrorCode.unknown_topic_id if topic is None else ErrorCode.unknown_topic_or_partition
        else:
            error = _check(image, broker_id, partition, proposal)
        if error or partition is None:
            answer.append(AlteredPartition(proposal.topic_id, proposal.partition_index, error))
            continue
        change = leadership.change(partition)
        change.isr = tuple(one for one, _ in proposal.new_isr)
        change.recovery_state = proposal.leader_recovery_state
        record = change.record(leadership.directory_of)
        if record is not None:
            records.append(record)
        answer.append(_altered(broker_id, partition, record))
    return Decision(answer, records)


def _check(image: MetadataImage, broker_id: int, partition: PartitionImage, proposal: IsrProposal) -> ErrorCode:
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        # It knows more than we do: we are not the controller any more.
        return ErrorCode.not_controller
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if broker_id != partition.leader:
        return ErrorCode.invalid_request
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    new_isr = [one for one, _ in proposal.new_isr]
    if len(set(new_isr)) < len(new_isr) or not set(new_isr) <= set(partition.replicas):
        return ErrorCode.invalid_request
    if partition.leader not in new_isr:
        return ErrorCode.invalid_request
    if proposal.leader_recovery_state == RECOVERING and (
        len(new_isr) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.invalid_request
    if proposal.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.invalid_request
    for member, member_epoch in proposal.new_isr:
        broker = image.brokers.get(member)
        if broker is None or not broker.is_active or member_epoch not in (ANY_BROKER_EPOCH, broker.epoch):
            return ErrorCode.ineligible_replica
    return ErrorCode.none


def _altered(broker_id: int, partition: PartitionImage, record: PartitionChangeRecord | None) -> AlteredPartition:
    leader, leader_epoch = partition.leader, partition.leader_epoch
    isr, recovery_state = partition.isr, partition.leader_recovery_state
    partition_epoch = partition.partition_epoch
    if record is not None:
        partition_epoch += 1
        isr = partition.isr if record.isr is None else record.isr
        if record.leader_recovery_state != RECOVERY_UNCHANGED:
            recovery_state = record.leader_recovery_state
        if record.leader != LEADER_UNCHANGED:
            leader, leader_epoch = record.leader, leader_epoch + 1
    if leader != broker_id:
        # The new ISR completed a reassignment, after which another leads: an error, though the change is made.
        return AlteredPartition(partition.topic_id, partition.index, ErrorCode.new_leader_elected)
    return AlteredPartition(
        partition.topic_id,
        partition.index,
        leader_id=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        leader_recovery_state=recovery_state,
        partition_epoch=partition_epoch,
    )
