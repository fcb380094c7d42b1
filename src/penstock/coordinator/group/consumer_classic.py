"""Members that speak the classic protocol in a group of the new kind: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

To such a member the group looks like a classic one whose leader is always somebody else. Its generation is its member
epoch; what the coordinator assigned comes as the answer to SyncGroup; the owned partitions in its subscription say
what it has given up; REBALANCE_IN_PROGRESS tells it to join again.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.effects import Answer, Append, CoordinatorRecord, Effect
from penstock.coordinator.group.classic_answers import join_failed, left, sync_failed
from penstock.coordinator.group.classic_member import WaitingJoin
from penstock.coordinator.group.consumer_membership import Membership
from penstock.coordinator.group.consumer_progress import Progress, Step
from penstock.coordinator.group.consumer_state import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from penstock.coordinator.group.embedded_protocol import (
    MalformedProtocol,
    Subscription,
    by_topic_id,
    protocol_version,
    read_subscription,
    write_assignment,
)
from penstock.coordinator.group.migration import Migration
from penstock.coordinator.group.records import ClassicMemberMetadata, ClassicProtocol
from penstock.coordinator.group.requests import LeavingMember, fits_record, instance_id_of, leaving_members
from penstock.coordinator.group.state import ShardState
from penstock.coordinator.requests import RequestContext, milliseconds
from penstock.protocol.messages import Struct

# From here on a new dynamic member is first told its id and joins with it (KIP-394).
_JOIN_GROUP_KNOWN_MEMBER_ID = 4


class ClassicMembers:
    def __init__(
        self,
        state: ShardState,
        progress: Progress,
        membership: Membership,
        migration: Migration,
    ) -> None:
        self._state = state
        self._progress = progress
        self._membership = membership
        self._migration = migration

    # JoinGroup

    def join_group(
        self, group: ConsumerGroup, token: int, request: Any, context: RequestContext, now_ms: int
    ) -> list[Effect]:
        try:
            return self._join(group, token, request, context, now_ms)
        except Refused as refused:
            return [join_failed(WaitingJoin(token, context.version), request.member_id, refused.code)]

    def _join(
        self, group: ConsumerGroup, token: int, request: Any, context: RequestContext, now_ms: int
    ) -> list[Effect]:
        subscription = self._check_join(group, request, context)
        instance_id = instance_id_of(request)
        member_id = request.member_id or str(self._state.random_uuid())
        if not request.member_id and instance_id is None and context.version >= _JOIN_GROUP_KNOWN_MEMBER_ID:
            return [join_failed(WaitingJoin(token, context.version), member_id, ErrorCode.member_id_required)]
        step = self._joining(group, member_id, request, context, subscription, now_ms)
        session_timeout_ms = milliseconds(request.session_timeout)
        static = None if instance_id is None else group.static_member(instance_id)
        if static is not None and self._migration.may_downgrade(group, [static], joining=1):
            member = self._join_and_downgrade(step, static, now_ms)
        else:
            member = self._progress.advance(step, now_ms)
            self._membership.no_longer_expect("join", group.group_id, member_id)
            self._membership.expect("session", group.group_id, member_id, session_timeout_ms, now_ms)
            self._membership.expect("sync", group.group_id, member_id, member.rebalance_timeout_ms, now_ms)
        answer = Answer(
            token,
            Struct(
                error_code=ErrorCode.none,
                generation_id=member.epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=request.protocols[0].name,
                leader="",
                skip_assignment=False,
                member_id=member_id,
                members=(),
            ),
        )
        return [Append(step.records), answer] if step.records else [answer]

    def _check_join(self, group: ConsumerGroup, request: Any, context: RequestContext) -> Subscription:
        settings = self._state.settings
        session_timeout_ms = milliseconds(request.session_timeout)
        timeout_min, timeout_max = settings["group.min.session.timeout.ms"], settings["group.max.session.timeout.ms"]
        if not timeout_min <= session_timeout_ms <= timeout_max:
            raise Refused(ErrorCode.invalid_session_timeout, f"Session timeout {session_timeout_ms} ms is illegal.")
        texts = (request.member_id, instance_id_of(request) or "", context.client_id)
        if not all(map(fits_record, texts)):
            raise Refused(ErrorCode.invalid_request, "A name is too long.")
        self._migration.check_mixing(group.group_id)
        self._membership.check_room(group, request.member_id)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise Refused(ErrorCode.inconsistent_group_protocol, "The member's protocols are not supported.")
        try:
            return read_subscription(request.protocols[0].metadata)
        except MalformedProtocol as error:
            raise Refused(ErrorCode.inconsistent_group_protocol, f"The subscription is malformed: {error}.") from None

    def _joining(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: Any,
        context: RequestContext,
        subscription: Subscription,
        now_ms: int,
    ) -> Step:
        records: list[CoordinatorRecord] = []
        instance_id = instance_id_of(request)
        replaced = None
        old = group.members.get(member_id, ConsumerMember(member_id))
        if instance_id is not None:
            static = group.static_member(instance_id)
            if request.member_id:
                old = self._membership.find(group, member_id, instance_id)
            elif static is not None:
                replaced = static
                old = self._membership.replace(group, static, member_id, records, now_ms)
        member = old._replace(
            instance_id=instance_id or old.instance_id,
            rack_id=subscription.rack_id or old.rack_id,
            rebalance_timeout_ms=milliseconds(getattr(request, "rebalance_timeout", request.session_timeout)),
            topic_names=subscription.topic_names,
            topic_regex=None,
            client_id=context.client_id,
            client_host=context.client_host,
            classic=ClassicMemberMetadata(
                session_timeout_ms=milliseconds(request.session_timeout),
                supported_protocols=tuple(
                    ClassicProtocol(name=protocol.name, metadata=bytes(protocol.metadata))
                    for protocol in request.protocols
                ),
            ),
        )
        owned = by_topic_id(subscription.owned, self._state.topics)
        return Step(group, old, member, replaced, owned, records)

    def _join_and_downgrade(self, step: Step, static: ConsumerMember, now_ms: int) -> ConsumerMember:
        """The last member that spoke the new protocol restarted and speaks the classic one."""
        group, change = step.group, step.change()
        has_new_subscription, epoch = self._progress.subscribe(step, change, now_ms)
        member = step.member
        needs_rebalance = group.assignment_epoch < epoch
        if not needs_rebalance:
            target = group.target_of(member)
            member = self._progress.reconcile(step, change, has_new_subscription, group.assignment_epoch, target)
        step.records.extend(self._membership.downgrade(group, [static], member, needs_rebalance, now_ms))
        return member

    # SyncGroup

    def sync_group(self, group: ConsumerGroup, token: int, request: Any, now_ms: int) -> list[Effect]:
        try:
            member, classic = self._find(group, request)
            self._check_protocol(classic, request)
            if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._expect_join(group, member, now_ms)
                raise Refused(ErrorCode.rebalance_in_progress, "A new rebalance is under way.")
        except Refused as refused:
            return [sync_failed(token, refused.code)]
        self._membership.no_longer_expect("sync", group.group_id, member.member_id)
        self._membership.keep_session(group.group_id, member, now_ms)
        protocol = classic.supported_protocols[0]
        assigned = {topic_id: list(numbers) for topic_id, numbers in member.assigned.items()}
        body = Struct(
            error_code=ErrorCode.none,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocol.name,
            assignment=write_assignment(assigned, protocol_version(protocol.metadata), self._state.topics),
        )
        return [Answer(token, body)]

    def _check_protocol(self, classic: ClassicMemberMetadata, request: Any) -> None:
        protocol_type = getattr(request, "protocol_type", None)
        protocol_name = getattr(request, "protocol_name", None)
        if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol_name not in (
            None,
            classic.supported_protocols[0].name,
        ):
            raise Refused(ErrorCode.inconsistent_group_protocol, "The protocol is not the one of the join response.")

    # Heartbeat

    def heartbeat(self, group: ConsumerGroup, token: int, request: Any, now_ms: int) -> list[Effect]:
        try:
            member, _ = self._find(group, request)
        except Refused as refused:
            return [Answer(token, Struct(error_code=refused.code))]
        self._membership.keep_session(group.group_id, member, now_ms)
        error = ErrorCode.none
        if self._must_rejoin(group, member):
            self._expect_join(group, member, now_ms)
            error = ErrorCode.rebalance_in_progress
        return [Answer(token, Struct(error_code=error))]

    def _must_rejoin(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """To follow a new assignment, to give partitions up, or to get those that others have given up by now."""
        return (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )

    def _find(self, group: ConsumerGroup, request: Any) -> tuple[ConsumerMember, ClassicMemberMetadata]:
        """The member and how it speaks. Raises Refused."""
        member = self._membership.find(group, request.member_id, instance_id_of(request))
        if member.classic is None:
            raise Refused(ErrorCode.unknown_member_id, f"Member {member.member_id} does not use the classic protocol.")
        if request.generation_id != member.epoch:
            raise Refused(ErrorCode.illegal_generation, f"The member epoch is {member.epoch}.")
        return member, member.classic

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        if not self._membership.is_expected("join", group.group_id, member.member_id):
            self._membership.expect("join", group.group_id, member.member_id, member.rebalance_timeout_ms, now_ms)

    # LeaveGroup

    def leave_group(
        self, group: ConsumerGroup, token: int, request: Any, context: RequestContext, now_ms: int
    ) -> list[Effect]:
        """Also for members of the new protocol: this is how an administrator removes any of them."""
        leaving = leaving_members(request)
        gone: dict[str, ConsumerMember] = {}
        outcomes = []
        for one in leaving:
            try:
                member = self._find_leaving(group, one)
            except Refused as refused:
                outcomes.append(refused.code)
                continue
            outcomes.append(ErrorCode.none)
            gone[member.member_id] = member
            if not one.member_id or member.classic is None:
                reason = f"removed by an administrator: {one.reason or 'no reason given'}"
                self._state.note_eviction(group.group_id, member.member_id, now_ms, reason)
        effects = self._membership.remove(group, list(gone.values()), now_ms)
        return [*effects, left(token, context, leaving, outcomes)]

    def _find_leaving(self, group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
        member_id = leaving.member_id
        if not member_id and leaving.group_instance_id is not None:
            member_id = group.static_member_ids.get(leaving.group_instance_id, "")
        return self._membership.find(group, member_id, leaving.group_instance_id)
