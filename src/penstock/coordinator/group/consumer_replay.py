"""Records of `__consumer_offsets` into groups of the new protocol: the only way their state changes.

Replaying is forgiving, as a compacted log asks for: tombstones of what was never seen are passed over, and records may
come without those that stood before them when they were written.
"""

from collections.abc import Callable
from typing import Any

from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group.consumer_records import epoch_partitions
from penstock.coordinator.group.consumer_state import (
    LEAVE_EPOCH,
    NO_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from penstock.coordinator.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


def replay_into(group: ConsumerGroup, record: CoordinatorRecord) -> None:
    """Applies any record but the tombstone of the group itself."""
    _REPLAY[type(record.key)](group, record.key, record.value)


def removes_group(record: CoordinatorRecord) -> bool:
    return record.value is None and isinstance(record.key, ConsumerGroupMetadataKey)


def _group_epoch(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_partition_metadata_record = value is not None


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove_member(key.member_id)
        return
    member = group.members.get(key.member_id, ConsumerMember(key.member_id))
    group.put_member(
        member._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or None,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
    )


def _current_assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            group.put_member(member._replace(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}))
        return
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    group.put_member(
        (member or ConsumerMember(key.member_id))._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=state,
            assigned=epoch_partitions(value.assigned_partitions, value.member_epoch),
            revoking=epoch_partitions(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _target_assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = {
            part.topic_id: frozenset(part.partitions) for part in value.topic_partitions if part.partitions
        }


def _target_epoch(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.assignment_epoch, group.assignment_ms = (
        (NO_EPOCH, 0) if value is None else (value.assignment_epoch, value.assignment_timestamp)
    )


def _regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.regexes.pop(key.regular_expression, None)
    else:
        group.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


_REPLAY: dict[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _group_epoch,
    ConsumerGroupPartitionMetadataKey: _partition_metadata,
    ConsumerGroupMemberMetadataKey: _member,
    ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _target_assignment,
    ConsumerGroupCurrentMemberAssignmentKey: _current_assignment,
    ConsumerGroupRegularExpressionKey: _regex,
}
