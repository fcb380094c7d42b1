"""The records that a group of the new protocol is made of, from and for its state."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group.assignors import Partitions
from penstock.coordinator.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentPartitions,
    TargetPartitions,
)

if TYPE_CHECKING:
    from penstock.coordinator.group.consumer_state import (
        ConsumerGroup,
        ConsumerMember,
        EpochPartitions,
        ResolvedRegex,
    )


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def member(group_id: str, member: "ConsumerMember") -> CoordinatorRecord:
    """What the member said of itself."""
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(member.topic_names)),
            # As Kafka writes it: no expression is an empty one.
            subscribed_topic_regex=member.topic_regex or "",
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        ),
    )


def current_assignment(group_id: str, member: "ConsumerMember") -> CoordinatorRecord:
    """How far the member has come."""
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=int(member.state),
            assigned_partitions=_current_partitions(member.assigned),
            partitions_pending_revocation=_current_partitions(member.revoking),
        ),
    )


def _current_partitions(partitions: "EpochPartitions") -> tuple[CurrentPartitions, ...]:
    return tuple(
        CurrentPartitions(
            topic_id=topic_id,
            partitions=tuple(ordered := sorted(epochs)),
            assignment_epochs=tuple(epochs[partition] for partition in ordered),
        )
        for topic_id, epochs in partitions.items()
    )


def epoch_partitions(parts: Iterable[CurrentPartitions], member_epoch: int) -> dict[UUID, dict[int, int]]:
    """The reverse; Kafka before 4.3 wrote no epochs of assignment."""
    return {
        part.topic_id: dict(zip(part.partitions, part.assignment_epochs, strict=True))
        if part.assignment_epochs is not None
        else dict.fromkeys(part.partitions, member_epoch)
        for part in parts
        if part.partitions
    }


def target_assignment(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=tuple(
                TargetPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
                for topic_id, numbers in partitions.items()
            )
        ),
    )


def target_epoch(group_id: str, epoch: int, computed_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=computed_ms)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def regex(group_id: str, expression: str, resolved: "ResolvedRegex") -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression),
        ConsumerGroupRegularExpressionValue(
            topics=tuple(sorted(resolved.topics)),
            version=resolved.topics_version,
            timestamp=resolved.resolved_ms,
        ),
    )


def regex_tombstone(group_id: str, expression: str) -> CoordinatorRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression)
    return CoordinatorRecord(key, None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """In this order: a member is removed after what it had and should have."""
    return [
        CoordinatorRecord(key, None)
        for key in (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        )
    ]


def group_tombstones(group: "ConsumerGroup") -> list[CoordinatorRecord]:
    """In the order in which Kafka, replaying them, demands that things go."""
    group_id = group.group_id
    # A target whose member is gone is no more than a leftover, but it must not stay in the log either.
    member_ids = dict.fromkeys((*group.members, *group.target))
    keys = [
        *(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id) for member_id in member_ids),
        *(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id) for member_id in member_ids),
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        *(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id) for member_id in member_ids),
        *(
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression)
            for expression in group.regexes
        ),
        ConsumerGroupMetadataKey(group_id=group_id),
    ]
    if group.has_partition_metadata_record:
        keys.insert(-1, ConsumerGroupPartitionMetadataKey(group_id=group_id))
    return [CoordinatorRecord(key, None) for key in keys]
