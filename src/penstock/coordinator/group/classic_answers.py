"""Answers to JoinGroup, SyncGroup and LeaveGroup. The first two may leave long after the request came."""

from collections.abc import Sequence

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Answer
from penstock.coordinator.group.classic_member import ClassicMember, WaitingJoin
from penstock.coordinator.group.classic_state import ClassicGroup
from penstock.coordinator.group.requests import LeavingMember
from penstock.coordinator.requests import RequestContext
from penstock.protocol.messages import Struct

# From here on the protocol's name may be null, and is where there is none.
_JOIN_GROUP_NULLABLE_PROTOCOL = 7


def join_failed(join: WaitingJoin, member_id: str, error: ErrorCode) -> Answer:
    return Answer(join.token, _join_body(join.version, member_id, error_code=error))


def joined(join: WaitingJoin, group: ClassicGroup, member_id: str, members: Sequence[Struct] = ()) -> Answer:
    """The current generation; the leader is given `members` to make an assignment for."""
    return Answer(
        join.token,
        _join_body(
            join.version,
            member_id,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader_id or "",
            members=members,
        ),
    )


def joined_without_rebalance(join: WaitingJoin, group: ClassicGroup, member_id: str, old_leader_id: str) -> Answer:
    """A static member is back and everything stays. From version 9 on a leader is told of its office, and to leave the
    assignment alone (KIP-814); before, it must not learn that it leads, or it would make a new one."""
    body = joined(join, group, member_id).body
    body.leader = old_leader_id
    if join.version >= 9:
        is_leader = group.leader_id == member_id
        body.leader = group.leader_id
        body.members = members_for_leader(group) if is_leader else ()
        body.skip_assignment = is_leader
    return Answer(join.token, body)


def members_for_leader(group: ClassicGroup) -> list[Struct]:
    protocol = group.protocol or ""
    return [
        Struct(member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.protocols[protocol])
        for member in group.members.values()
    ]


def sync_failed(token: int, error: ErrorCode) -> Answer:
    return Answer(token, Struct(error_code=error, protocol_type=None, protocol_name=None, assignment=b""))


def synced(token: int, group: ClassicGroup, assignment: bytes) -> Answer:
    return Answer(
        token,
        Struct(
            error_code=ErrorCode.none,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=assignment,
        ),
    )


def fail_waiting(group: ClassicGroup, member: ClassicMember, member_id: str, error: ErrorCode) -> list[Answer]:
    """Answers what the member waits for, with this id and error."""
    answers = []
    if member.waiting_join is not None:
        answers.append(join_failed(member.waiting_join, member_id, error))
        group.set_waiting_join(member, None)
    if member.waiting_sync is not None:
        answers.append(sync_failed(member.waiting_sync, error))
        member.waiting_sync = None
    return answers


def left(
    token: int, context: RequestContext, leaving: Sequence[LeavingMember], outcomes: Sequence[ErrorCode]
) -> Answer:
    """The answer to LeaveGroup; before version 3 the one member's outcome is that of the request."""
    members = [
        Struct(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=outcome)
        for one, outcome in zip(leaving, outcomes, strict=True)
    ]
    is_about_one = context.version < 3
    return Answer(token, Struct(error_code=outcomes[0] if is_about_one else ErrorCode.none, members=members))


def _join_body(
    version: int,
    member_id: str,
    *,
    error_code: ErrorCode = ErrorCode.none,
    generation_id: int = -1,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    leader: str = "",
    members: Sequence[Struct] = (),
) -> Struct:
    if protocol_name is None and version < _JOIN_GROUP_NULLABLE_PROTOCOL:
        protocol_name = ""
    return Struct(
        error_code=error_code,
        generation_id=generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        leader=leader,
        skip_assignment=False,
        member_id=member_id,
        members=members,
    )
