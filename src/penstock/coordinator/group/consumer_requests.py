"""What ConsumerGroupHeartbeat must look like, and whether its epoch is the member's."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.group.consumer_state import STATIC_LEAVE_EPOCH, ConsumerMember
from penstock.coordinator.group.reconciliation import Owned
from penstock.coordinator.group.requests import fits_record
from penstock.coordinator.requests import RequestContext, milliseconds

# From here on members choose their own ids (KIP-1082).
_MEMBER_ID_REQUIRED_SINCE = 1


def check_heartbeat(request: Any, context: RequestContext, assignors: Collection[str]) -> None:
    """Raises Refused."""
    if context.version >= _MEMBER_ID_REQUIRED_SINCE or request.member_epoch > 0 or request.member_epoch == -1:
        _not_blank(request.member_id, "MemberId")
    _not_blank(request.group_id, "GroupId")
    _not_blank(request.instance_id, "InstanceId")
    _not_blank(request.rack_id, "RackId")
    if not fits_record(request.group_id):
        raise Refused(ErrorCode.invalid_group_id, "GroupId is too long.")
    regex = getattr(request, "subscribed_topic_regex", None)
    if not all(map(fits_record, (request.member_id, context.client_id, regex or ""))):
        raise _invalid("MemberId, client id or SubscribedTopicRegex is too long.")
    if request.member_epoch == 0:
        if milliseconds(request.rebalance_timeout) == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _not_blank(text: str | None, field: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{field} can't be empty.")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.invalid_request, message)


def owned_partitions(request: Any) -> dict[UUID, frozenset[int]] | None:
    """What the member says it has; None where it says nothing."""
    if request.topic_partitions is None:
        return None
    return {part.topic_id: frozenset(part.partitions) for part in request.topic_partitions if part.partitions}


def said_all(request: Any) -> bool:
    """Whether the member said all there is to say: it does so when it joins, and when an answer was lost. Then it
    wants to be told everything too."""
    if request.member_epoch == 0:
        return True
    has_subscription = (
        request.subscribed_topic_names is not None or getattr(request, "subscribed_topic_regex", None) is not None
    )
    return milliseconds(request.rebalance_timeout) != -1 and has_subscription and request.topic_partitions is not None


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raises Refused."""
    if epoch == member.epoch:
        return
    # The answer that told the member its new epoch may have been lost.
    if epoch < member.epoch and epoch == member.previous_epoch and _has_no_more_than(owned, member.assigned):
        return
    # A member that forgot all it had joins again under its old id.
    if epoch == 0:
        return
    how = "greater" if epoch > member.epoch else "smaller"
    raise Refused(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _has_no_more_than(owned: Owned | None, assigned: Mapping[UUID, Mapping[int, int]]) -> bool:
    if owned is None:
        return False
    return all(assigned.get(topic_id, {}).keys() >= set(numbers) for topic_id, numbers in owned.items())
