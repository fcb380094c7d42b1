"""The new group protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe, and what else reaches its groups.

A member says in its heartbeats what it subscribes to and what it has; the coordinator assigns, and answers with what
the member may have. `consumer_state` has the group and its epochs, `consumer_progress` how it comes from one to the
next, `reconciliation` how a member follows, `consumer_membership` who is in it, `consumer_classic` members that speak
the classic protocol, `migration` groups that change over.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.effects import Append, CoordinatorRecord, Effect
from penstock.coordinator.group.assignors import ASSIGNORS
from penstock.coordinator.group.classic_state import ClassicGroup
from penstock.coordinator.group.consumer_answers import described, heartbeat_answer, heartbeat_failed
from penstock.coordinator.group.consumer_classic import ClassicMembers
from penstock.coordinator.group.consumer_membership import Membership
from penstock.coordinator.group.consumer_progress import Progress, Step
from penstock.coordinator.group.consumer_records import current_assignment
from penstock.coordinator.group.consumer_replay import removes_group, replay_into
from penstock.coordinator.group.consumer_requests import check_epoch, check_heartbeat, owned_partitions, said_all
from penstock.coordinator.group.consumer_state import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from penstock.coordinator.group.migration import Migration
from penstock.coordinator.group.state import ShardState
from penstock.coordinator.requests import RequestContext, milliseconds
from penstock.protocol.messages import Struct

# While a group is finding its way into a new epoch its members are asked to report this often, or they would learn of
# what others gave up, and of members that came just after them, only a whole heartbeat interval later.
SETTLING_HEARTBEAT_INTERVAL_MS = 1000


class ConsumerGroups:
    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._progress = Progress(state)
        self._migration = Migration(state)
        self._membership = Membership(state, self._progress, self._migration)
        self._classic_members = ClassicMembers(state, self._progress, self._membership, self._migration)

    # ConsumerGroupHeartbeat

    def consumer_group_heartbeat(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        try:
            check_heartbeat(request, context, self._offered_assignors())
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(token, request, now_ms)
            return self._heartbeat(token, request, context, now_ms)
        except Refused as refused:
            return [heartbeat_failed(token, refused)]

    def _offered_assignors(self) -> list[str]:
        return [name for name in self._state.settings["group.consumer.assignors"] if name in ASSIGNORS]

    def _heartbeat(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        records: list[CoordinatorRecord] = []
        group, effects = self._group_of(request, records, now_ms)
        self._membership.check_room(group, request.member_id)
        member_id = request.member_id or str(self._state.random_uuid())
        step = self._step(group, member_id, request, context, records, now_ms)
        member = self._progress.advance(step, now_ms)
        self._membership.keep_session(group.group_id, member, now_ms)
        if member != step.member:
            self._membership.time_revocation(group.group_id, member, now_ms)
        if step.old.classic is not None:
            self._membership.no_longer_expect("join", group.group_id, member_id)
            self._membership.no_longer_expect("sync", group.group_id, member_id)
        tells_assignment = said_all(request) or not member.has_same_partitions(step.old)
        interval_ms = self._heartbeat_interval_ms(group.group_id, member, now_ms)
        answer = heartbeat_answer(token, member, interval_ms, tells_assignment)
        return [*effects, Append(records), answer] if records else [*effects, answer]

    def _group_of(
        self, request: Any, records: list[CoordinatorRecord], now_ms: int
    ) -> tuple[ConsumerGroup, list[Effect]]:
        """The group, which a member that joins may have made, or made anew out of a classic one. Raises Refused."""
        group_id = request.group_id
        group = self._state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if request.member_epoch != 0:
            what = "not found" if group is None else "is not a consumer group"
            raise Refused(ErrorCode.group_id_not_found, f"Group {group_id} {what}.")
        if group is None or group.is_empty():
            if group is not None:
                records += group.tombstones()
            return ConsumerGroup(group_id, self._state.topics), []
        if not isinstance(group, ClassicGroup):
            raise Refused(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        upgraded, conversion, answers = self._migration.upgrade(group)
        records += conversion
        for member in upgraded.members.values():
            self._membership.keep_session(group_id, member, now_ms)
        return upgraded, answers

    def _step(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: Any,
        context: RequestContext,
        records: list[CoordinatorRecord],
        now_ms: int,
    ) -> Step:
        """The member that the request is from, and what the request makes of it. Raises Refused."""
        owned = owned_partitions(request)
        replaced = None
        static = None if request.instance_id is None else group.static_member(request.instance_id)
        if request.member_epoch != 0:
            old = self._membership.find(group, member_id, request.instance_id)
            check_epoch(old, request.member_epoch, owned)
        elif static is None or static.member_id == member_id:
            # The same process again: the answer to its first try was lost, or it was told to start anew.
            old = group.members.get(member_id, ConsumerMember(member_id))
            check_epoch(old, request.member_epoch, owned)
        else:
            if static.classic is None and static.epoch != STATIC_LEAVE_EPOCH:
                raise Refused(
                    ErrorCode.unreleased_instance_id,
                    f"Static member {member_id} with instance id {request.instance_id} cannot join the group because "
                    f"the instance id is owned by member {static.member_id}.",
                )
            replaced = static
            old = self._membership.replace(group, static, member_id, records, now_ms)
        return Step(group, old, self._updated(old, request, context), replaced, owned, records)

    def _updated(self, old: ConsumerMember, request: Any, context: RequestContext) -> ConsumerMember:
        """What is null in a request has not changed."""
        rebalance_timeout_ms = milliseconds(request.rebalance_timeout)
        names = request.subscribed_topic_names
        regex = getattr(request, "subscribed_topic_regex", None)
        return old._replace(
            instance_id=request.instance_id or old.instance_id,
            rack_id=request.rack_id or old.rack_id,
            rebalance_timeout_ms=old.rebalance_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            server_assignor=request.server_assignor or old.server_assignor,
            topic_names=old.topic_names if names is None else frozenset(names),
            topic_regex=old.topic_regex if regex is None else regex or None,
            client_id=context.client_id,
            client_host=context.client_host,
            classic=None,
        )

    def _heartbeat_interval_ms(self, group_id: str, member: ConsumerMember, now_ms: int) -> int:
        interval_ms: int = self._state.setting_of(group_id, "consumer.heartbeat.interval.ms")
        changed_ms = self._progress.changed_ms(group_id)
        is_settled = changed_ms is None or now_ms - changed_ms > interval_ms
        if is_settled and member.state is MemberState.STABLE:
            return interval_ms
        return min(interval_ms, SETTLING_HEARTBEAT_INTERVAL_MS)

    def _leave(self, token: int, request: Any, now_ms: int) -> list[Effect]:
        group = self._state.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise Refused(ErrorCode.group_id_not_found, f"Consumer group {request.group_id} not found.")
        member = self._membership.find(group, request.member_id, request.instance_id)
        answer = heartbeat_answer(token, member._replace(epoch=request.member_epoch), 0, tells_assignment=False)
        if request.member_epoch == LEAVE_EPOCH:
            return [*self._membership.remove(group, [member], now_ms), answer]
        # A static member that will be back: its place is kept, until its session ends.
        assigned = {topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in member.assigned.items()}
        left = member._replace(epoch=STATIC_LEAVE_EPOCH, assigned=assigned, revoking={})
        return [Append([current_assignment(group.group_id, left)]), answer]

    # The classic protocol

    def join_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._classic_members.join_group(self._known(request), token, request, context, now_ms)

    def sync_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._classic_members.sync_group(self._known(request), token, request, now_ms)

    def heartbeat(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._classic_members.heartbeat(self._known(request), token, request, now_ms)

    def leave_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._classic_members.leave_group(self._known(request), token, request, context, now_ms)

    def _known(self, request: Any) -> ConsumerGroup:
        """The caller has seen that it is one."""
        group = self._state.groups[request.group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    # ConsumerGroupDescribe

    def describe(self, group_id: str) -> Struct:
        """The caller has seen that it is a group of this kind."""
        group = self._state.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return described(group, self._offered_assignors())

    # The life of the shard

    def replay(self, record: CoordinatorRecord) -> None:
        group_id = record.key.group_id
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # What stood there is a classic group without records of its own, kept for its offsets.
            group = self._state.groups[group_id] = ConsumerGroup(group_id, self._state.topics)
        if removes_group(record):
            del self._state.groups[group_id]
            for member_id in group.members:
                self._membership.cancel_timers(group_id, member_id)
            self._progress.forget(group_id)
            return
        replay_into(group, record)

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """Everybody gets a whole session to be heard of, and a whole rebalance timeout for what it must give up."""
        for group in [group for group in self._state.groups.values() if isinstance(group, ConsumerGroup)]:
            for member in group.members.values():
                self._membership.keep_session(group.group_id, member, now_ms)
                self._membership.time_revocation(group.group_id, member, now_ms)
            if group.members and group.epoch > group.assignment_epoch:
                self._progress.work_when_due(group, now_ms)
        return []
